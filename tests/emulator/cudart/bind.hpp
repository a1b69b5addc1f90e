// Handlers made from plain functions on values: `bind<fma_f32>` reads the lanes of the sources, applies the function
// and writes the lanes that are on. The loops have 32 turns and no branch, so that the compiler makes vector code of
// them.
#pragma once
#include <tuple>
#include <unordered_map>
#include <utility>

#include "decoder.hpp"
#include "program.hpp"
#include "warp.hpp"

namespace ptxemu {
// How a value stands in a register: 8-byte types in 64-bit lanes, all others in 32-bit lanes, zero-extended.
template <class T>
using Slot = std::conditional_t<sizeof(T) == 8, u64, u32>;

template <class T>
inline T from_slot(Slot<T> bits) {
    if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(bits);
    } else {
        return bit_cast<T>(bits);
    }
}

template <class T>
inline Slot<T> to_slot(T value) {
    if constexpr (std::is_integral_v<T>) {
        return static_cast<Slot<T>>(static_cast<std::make_unsigned_t<T>>(value));
    } else {
        return bit_cast<Slot<T>>(value);
    }
}

using Binder = void (*)(Decoder&);
using Table = std::unordered_map<std::string, Binder>;

template <class D>
inline void keep_lanes(Warp& warp, const D* values, D* out) {
    const u32 mask = warp.mask;
#pragma GCC ivdep
    for (int lane = 0; lane < kLanes; ++lane) out[lane] = (mask >> lane & 1) != 0 ? values[lane] : out[lane];
}

template <auto F>
struct Mapped;

template <class D, class... A, D (*F)(A...)>
struct Mapped<F> {
    template <std::size_t... I>
    static void apply(Warp& warp, const Instruction& instruction, std::index_sequence<I...>) {
        const std::tuple<const Slot<A>*...> in{warp.source<Slot<A>>(instruction.in[I])...};
        Slot<D>* const out = warp.target<Slot<D>>(instruction.out);
        if (warp.mask == kEveryLane) {
#pragma GCC ivdep  // out may be one of the sources, lane by lane
            for (int lane = 0; lane < kLanes; ++lane) out[lane] = to_slot<D>(F(from_slot<A>(std::get<I>(in)[lane])...));
        } else {
            alignas(64) Slot<D> values[kLanes];
            for (int lane = 0; lane < kLanes; ++lane)
                values[lane] = to_slot<D>(F(from_slot<A>(std::get<I>(in)[lane])...));
            keep_lanes(warp, values, out);
        }
    }
    static void run(Warp& warp, const Instruction& instruction) {
        apply(warp, instruction, std::index_sequence_for<A...>());
    }
    template <std::size_t... I>
    static void take(Decoder& decoder, std::index_sequence<I...>) {
        if (decoder.operands() != sizeof...(A) + 1) decoder.unknown("operands");
        Instruction& instruction = decoder.instruction();
        ((instruction.in[I] = decoder.source(I + 1, sizeof(Slot<A>) * 8, decoder.type())), ...);
        instruction.out = decoder.target(decoder.operand(0), sizeof(Slot<D>) * 8);
        instruction.run = run;
    }
    static void bind(Decoder& decoder) { take(decoder, std::index_sequence_for<A...>()); }
};

// Binds operands 1, 2, ... to the arguments of F and operand 0 to its value.
template <auto F>
void bind(Decoder& decoder) {
    Mapped<F>::bind(decoder);
}

// The bits of a word of lanes that are not zero, as a mask.
inline u32 to_mask(const u32* lanes) {
    u32 mask = 0;
    for (int lane = 0; lane < kLanes; ++lane) mask |= static_cast<u32>(lanes[lane] != 0) << lane;
    return mask;
}

// The instruction families: each binds the decoder's statement, or returns false where it is none of its own.
// `key` is the opcode with the modifiers that matter and the types: "mad.lo.s32".
bool bind_integer(Decoder& decoder, const std::string& key);
bool bind_carry(Decoder& decoder, const std::string& key);
bool bind_bits(Decoder& decoder, const std::string& key);
bool bind_float(Decoder& decoder, const std::string& key);
bool bind_half(Decoder& decoder, const std::string& key);
bool bind_compare(Decoder& decoder, const std::string& key);
bool bind_convert(Decoder& decoder, const std::string& key);
bool bind_move(Decoder& decoder, const std::string& key);
bool bind_memory(Decoder& decoder, const std::string& key);
bool bind_atomic(Decoder& decoder, const std::string& key);
bool bind_warp(Decoder& decoder, const std::string& key);
bool bind_matrix(Decoder& decoder, const std::string& key);
bool bind_wmma(Decoder& decoder, const std::string& key);
bool bind_async(Decoder& decoder, const std::string& key);
bool bind_other(Decoder& decoder, const std::string& key);

inline bool bind_from(const Table& table, Decoder& decoder, const std::string& key) {
    const auto row = table.find(key);
    if (row == table.end()) return false;
    row->second(decoder);
    return true;
}

// Block barriers are flow: the warp stops at them and the block lets it go on.
struct Barrier;
void bind_barrier(Decoder& decoder);
void give_barrier_result(Warp& warp, const Instruction& instruction, u32 lanes, const Barrier& barrier);

// Wraps the bound handler where the modifiers ask for another rounding or for subnormals flushed to zero.
void wrap_rounding(Decoder& decoder);
}  // namespace ptxemu
