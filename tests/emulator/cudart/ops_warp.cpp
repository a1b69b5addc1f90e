// Exchange between the lanes of a warp (PTX ISA, "shfl.sync", "vote.sync", "match.sync", "redux.sync", "elect.sync").
#include "bind.hpp"

namespace ptxemu {
namespace {
enum Mode : u8 { kUp, kDown, kButterfly, kIndex };

void run_shuffle(Warp& warp, const Instruction& instruction) {
    const u32* value = warp.source<u32>(instruction.in[0]);
    const u32* second = warp.source<u32>(instruction.in[1]);
    const u32* third = warp.source<u32>(instruction.in[2]);
    alignas(64) u32 values[kLanes];
    u32 inside = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
        const int b = static_cast<int>(second[lane] & 31), clamp = static_cast<int>(third[lane] & 31);
        const int segment = static_cast<int>(third[lane] >> 8 & 31);
        const int most = (lane & segment) | (clamp & ~segment), least = lane & segment;
        int from = lane;
        switch (instruction.mode) {
            case kUp:
                from = lane - b;
                break;
            case kDown:
                from = lane + b;
                break;
            case kButterfly:
                from = lane ^ b;
                break;
            default:
                from = least | (b & ~segment);
        }
        const bool within = instruction.mode == kUp ? from >= most : from <= most;
        values[lane] = value[within ? from & 31 : lane];
        inside |= static_cast<u32>(within) << lane;
    }
    keep_lanes(warp, values, warp.target<u32>(instruction.out));
    warp.set_predicate(instruction.out2.at, inside);
}

void fill(Warp& warp, const Target& out, u64 value) {
    for (int lane = 0; lane < kLanes; ++lane) {
        if (warp.on(lane)) warp.set(out, lane, value);
    }
}

enum Vote : u8 { kAll, kAny, kUniform, kBallot };

void run_vote(Warp& warp, const Instruction& instruction) {
    const u32 yes = warp.predicate(instruction.in[0]) & warp.mask;
    const bool all = yes == warp.mask;
    if (instruction.mode == kBallot) {
        fill(warp, instruction.out, yes);
        return;
    }
    const bool result = instruction.mode == kAll ? all : instruction.mode == kAny ? yes != 0 : all || yes == 0;
    warp.set_predicate(instruction.out.at, result ? kEveryLane : 0);
}

void run_match(Warp& warp, const Instruction& instruction) {
    u32 same[kLanes] = {};
    for (int lane = 0; lane < kLanes; ++lane) {
        const u64 mine = warp.value(instruction.in[0], lane);
        for (int other = 0; other < kLanes; ++other) {
            same[lane] |= static_cast<u32>(warp.on(other) && warp.value(instruction.in[0], other) == mine) << other;
        }
    }
    u32 equal = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
        if (!warp.on(lane)) continue;
        const bool all = same[lane] == warp.mask;
        warp.set(instruction.out, lane, instruction.mode == 0 || all ? same[lane] : 0);
        equal |= static_cast<u32>(all) << lane;
    }
    if (instruction.mode != 0) warp.set_predicate(instruction.out2.at, equal);
}

enum Reduction : u8 { kAdd, kMin, kMax, kAnd, kOr, kXor };

void run_redux(Warp& warp, const Instruction& instruction) {
    const u32* values = warp.source<u32>(instruction.in[0]);
    const bool minus = is_signed(instruction.type);
    const auto less = [&](u32 a, u32 b) { return minus ? static_cast<s32>(a) < static_cast<s32>(b) : a < b; };
    u32 result = 0;
    bool first = true;
    for (u32 rest = warp.mask; rest != 0; rest &= rest - 1) {
        const u32 value = values[__builtin_ctz(rest)];
        if (first) result = value;
        const u32 before = result;
        switch (instruction.mode) {
            case kAdd:
                result = first ? value : before + value;
                break;
            case kMin:
                result = less(value, before) ? value : before;
                break;
            case kMax:
                result = less(before, value) ? value : before;
                break;
            case kAnd:
                result = before & value;
                break;
            case kOr:
                result = before | value;
                break;
            default:
                result = first ? value : before ^ value;
        }
        first = false;
    }
    fill(warp, instruction.out, result);
}

void run_elect(Warp& warp, const Instruction& instruction) {
    const int leader = __builtin_ctz(warp.mask);
    fill(warp, instruction.out, static_cast<u64>(leader));
    warp.set_predicate(instruction.out2.at, 1u << leader);
}

void run_active(Warp& warp, const Instruction& instruction) { fill(warp, instruction.out, warp.mask); }
void run_nothing(Warp&, const Instruction&) {}

u8 mode_of(const Decoder& decoder, std::initializer_list<const char*> names) {
    u8 mode = 0;
    for (const char* name : names) {
        if (decoder.has(name)) return mode;
        ++mode;
    }
    decoder.unknown("mode");
}

// Lanes that take part must all have come to the instruction: the warp waits for those of the mask, operand `index`.
void wait_for(Decoder& decoder, std::size_t index) {
    decoder.instruction().control = Control::warp_sync;
    decoder.instruction().in[4] = decoder.source(index, 32, Type::b32);
}

void take_targets(Decoder& decoder, bool predicate_first = false) {
    const Operand& out = decoder.operand(0);
    const bool two = out.kind == Operand::Kind::pair;
    const Operand& first = two ? out.parts[0] : out;
    Instruction& instruction = decoder.instruction();
    if (predicate_first) {
        instruction.out.at = decoder.predicate_target(first);
    } else {
        instruction.out = decoder.any_target(first);
    }
    instruction.out2.at = decoder.predicate_target(two ? out.parts[1] : Operand{});
}
}  // namespace

bool bind_warp(Decoder& decoder, const std::string&) {
    const std::string& op = decoder.statement().op;
    Instruction& instruction = decoder.instruction();
    if (op == "shfl") {
        instruction.mode = mode_of(decoder, {"up", "down", "bfly", "idx"});
        for (std::size_t i = 0; i < 3; ++i) instruction.in[i] = decoder.source(i + 1, 32, Type::b32);
        take_targets(decoder);
        wait_for(decoder, 4);
        instruction.run = run_shuffle;
    } else if (op == "vote") {
        instruction.mode = mode_of(decoder, {"all", "any", "uni", "ballot"});
        instruction.in[0] = decoder.predicate(decoder.operand(1));
        take_targets(decoder, instruction.mode != kBallot);
        wait_for(decoder, 2);
        instruction.run = run_vote;
    } else if (op == "match") {
        instruction.mode = mode_of(decoder, {"any", "all"});
        instruction.in[0] = decoder.any_source(decoder.operand(1), decoder.type());
        take_targets(decoder);
        wait_for(decoder, 2);
        instruction.run = run_match;
    } else if (op == "redux") {
        instruction.mode = mode_of(decoder, {"add", "min", "max", "and", "or", "xor"});
        if (is_float(decoder.type())) decoder.unknown("type");
        instruction.in[0] = decoder.source(1, 32, decoder.type());
        take_targets(decoder);
        wait_for(decoder, 2);
        instruction.run = run_redux;
    } else if (op == "elect") {
        take_targets(decoder);
        wait_for(decoder, 1);
        instruction.run = run_elect;
    } else if (op == "activemask") {
        take_targets(decoder);
        instruction.run = run_active;
    } else if (op == "bar" && decoder.has("warp")) {
        wait_for(decoder, 0);
        instruction.run = run_nothing;
    } else {
        return false;
    }
    return true;
}
}  // namespace ptxemu
