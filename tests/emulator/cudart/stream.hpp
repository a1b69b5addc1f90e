// Streams: a queue and a host thread each. Events and graphs are made of what streams carry.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device.hpp"

namespace ptxemu {
using Work = std::function<void()>;

struct Node {
    cudaGraphNodeType type;
    Work work;
};

struct Graph {
    std::vector<Node> nodes;
};

// One recording of an event: the event's next one is a new object, so that whoever waits keeps what it waits for.
struct Recording {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    double time_s = 0;
    void complete();
    void wait();
};

struct Event {
    unsigned flags = 0;
    int device = 0;
    std::shared_ptr<Recording> recording;  // the last one
    std::shared_ptr<Graph> captured_in;    // recorded into a graph that is being captured
};

class Stream {
  public:
    Stream(int device, unsigned flags, int priority, bool is_legacy);
    // Runs `work` after all that was submitted before, and, for the legacy stream and those that heed it, after each
    // other's. Work is dropped once the context has failed.
    u64 submit(Work work);
    // To the graph while capturing, else submitted.
    void enqueue(cudaGraphNodeType type, Work work);
    void wait(u64 ticket);
    void finish();
    bool idle() const;
    void close();  // the thread ends when the queue is empty

    int device() const { return device_; }
    unsigned flags() const { return flags_; }
    int priority() const { return priority_; }
    bool is_legacy() const { return is_legacy_; }
    std::shared_ptr<Graph> capture;  // while capturing
    bool capture_origin = false;     // where the capture began
    cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

  private:
    struct State;
    static void serve(const std::shared_ptr<State>& state, int device);
    u64 push(Work work);
    u64 last_ticket() const;
    const int device_;
    const unsigned flags_;
    const int priority_;
    const bool is_legacy_;
    std::shared_ptr<State> state_;
};

// The stream of a handle, on the current device for the default ones; nullptr for a handle that is none.
std::shared_ptr<Stream> stream_of(cudaStream_t handle);
std::shared_ptr<Event> event_of(cudaEvent_t handle);
bool anything_captures();  // whether any stream captures in global mode: calls that would synchronise are refused
void count_capture(int change);
double now_s();
}  // namespace ptxemu
