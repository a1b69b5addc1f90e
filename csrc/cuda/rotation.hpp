// Several works in turn: the same kernel on disjoint sets of operands, so that none is in a cache when it comes round.
#pragma once
#include <cstddef>
#include <stdexcept>
#include <utility>
#include <vector>

#include "cuda/task.hpp"

namespace gm {

class Rotation : public Task {
  public:
    explicit Rotation(std::vector<Work> works) : works_(std::move(works)) {
        if (works_.empty()) throw std::invalid_argument("a rotation of no works");
    }
    void run(std::int64_t n) override {
        for (std::int64_t i = 0; i < n; ++i) {
            const Work& work = works_[next_];
            next_ = (next_ + 1) % works_.size();
            work.run(work.context, 1);
        }
    }

  private:
    std::vector<Work> works_;
    std::size_t next_ = 0;
};

}  // namespace gm
