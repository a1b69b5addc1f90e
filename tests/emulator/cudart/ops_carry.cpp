// Extended-precision arithmetic through the carry flag (PTX ISA, "Extended-Precision Integer Arithmetic Instructions").
#include "bind.hpp"

namespace ptxemu {
namespace {
enum Flags : u8 { kSetCarry = 1, kUseCarry = 2, kSubtract = 4 };

// out = a + b + carry, or a - b - borrow; subtraction keeps the borrow in the carry flag.
template <class T>
void run_add(Warp& warp, const Instruction& instruction) {
    const T* a = warp.source<T>(instruction.in[0]);
    const T* b = warp.source<T>(instruction.in[1]);
    T* const out = warp.target<T>(instruction.out);
    const bool subtract = (instruction.mode & kSubtract) != 0;
    u32 carry = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
        if (!warp.on(lane)) continue;
        const T in = (instruction.mode & kUseCarry) != 0 ? warp.carry >> lane & 1 : 0;
        T sum = 0;
        bool over = false;
        if (subtract) {
            over = __builtin_sub_overflow(a[lane], b[lane], &sum);
            over = __builtin_sub_overflow(sum, in, &sum) || over;
        } else {
            over = __builtin_add_overflow(a[lane], b[lane], &sum);
            over = __builtin_add_overflow(sum, in, &sum) || over;
        }
        out[lane] = sum;
        carry |= static_cast<u32>(over) << lane;
    }
    if ((instruction.mode & kSetCarry) != 0) warp.carry = (warp.carry & ~warp.mask) | carry;
}

// out = low or high half of a * b, plus c and the carry.
template <class T, bool Signed>
void run_mad(Warp& warp, const Instruction& instruction) {
    using Value = std::conditional_t<Signed, std::make_signed_t<T>, T>;
    using Wide = std::conditional_t<Signed, __int128, unsigned __int128>;
    const T* a = warp.source<T>(instruction.in[0]);
    const T* b = warp.source<T>(instruction.in[1]);
    const T* c = warp.source<T>(instruction.in[2]);
    T* const out = warp.target<T>(instruction.out);
    u32 carry = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
        if (!warp.on(lane)) continue;
        const Wide product = static_cast<Wide>(static_cast<Value>(a[lane])) * static_cast<Value>(b[lane]);
        const T half = static_cast<T>(instruction.immediate != 0 ? product >> (8 * sizeof(T)) : product);
        const T in = (instruction.mode & kUseCarry) != 0 ? warp.carry >> lane & 1 : 0;
        T sum = 0;
        bool over = __builtin_add_overflow(half, c[lane], &sum);
        over = __builtin_add_overflow(sum, in, &sum) || over;
        out[lane] = sum;
        carry |= static_cast<u32>(over) << lane;
    }
    if ((instruction.mode & kSetCarry) != 0) warp.carry = (warp.carry & ~warp.mask) | carry;
}
}  // namespace

bool bind_carry(Decoder& decoder, const std::string&) {
    const std::string& op = decoder.statement().op;
    const bool uses = op == "addc" || op == "subc" || op == "madc";
    const bool sets = decoder.has("cc");
    if (!uses && !(sets && (op == "add" || op == "sub" || op == "mad"))) return false;
    const bool mad = op[0] == 'm', wide = size_bytes(decoder.type()) == 8;
    Instruction& instruction = decoder.instruction();
    instruction.mode =
        static_cast<u8>((sets ? kSetCarry : 0) | (uses ? kUseCarry : 0) | (op[0] == 's' ? kSubtract : 0));
    instruction.immediate = decoder.has("hi") ? 1 : 0;
    for (std::size_t i = 0; i < (mad ? 3u : 2u); ++i) {
        instruction.in[i] = decoder.source(i + 1, wide ? 64 : 32, decoder.type());
    }
    instruction.out = decoder.target(decoder.operand(0), wide ? 64 : 32);
    if (!mad) {
        instruction.run = wide ? run_add<u64> : run_add<u32>;
    } else if (is_signed(decoder.type())) {
        instruction.run = wide ? run_mad<u64, true> : run_mad<u32, true>;
    } else {
        instruction.run = wide ? run_mad<u64, false> : run_mad<u32, false>;
    }
    return true;
}
}  // namespace ptxemu
