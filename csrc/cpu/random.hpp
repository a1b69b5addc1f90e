// Counter-based random numbers: element i of operand k depends on (seed, k, i) alone, so threads fill their own slices
// and NumPy can make the same numbers (gpumicro/kernels/operands.py).
#pragma once
#include <cmath>
#include <cstdint>

namespace gm::cpu {

enum class Operands { uniform, normal, zeros };

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15ULL;

// Vigna's SplitMix64 output function.
inline std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

class Stream {
  public:
    Stream(std::uint64_t seed, std::uint64_t operand) : key_(mix(seed + mix(operand + 1))) {}

    std::uint64_t bits(std::int64_t i) const { return mix(key_ + (static_cast<std::uint64_t>(i) + 1) * kGolden); }

    // Uniform in [-1, 1), with as many bits as T's significand holds.
    template <class T>
    T uniform(std::int64_t i) const {
        if constexpr (sizeof(T) == 8) return static_cast<T>(static_cast<double>(bits(i) >> 11) * 0x1p-52 - 1.0);
        return static_cast<T>(static_cast<float>(bits(i) >> 40) * 0x1p-23F - 1.0F);
    }

    // Standard normal by Box and Muller, from the two halves of the bits.
    template <class T>
    T normal(std::int64_t i) const {
        const std::uint64_t z = bits(i);
        const double u = (static_cast<double>(z >> 32) + 0.5) * 0x1p-32;
        const double v = static_cast<double>(z & 0xffffffffU) * 0x1p-32;
        return static_cast<T>(std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v));
    }

    template <class T>
    T draw(Operands operands, std::int64_t i) const {
        if (operands == Operands::uniform) return uniform<T>(i);
        return operands == Operands::normal ? normal<T>(i) : T{};
    }

  private:
    std::uint64_t key_;
};

}  // namespace gm::cpu
