// Random numbers of our own: the same seed gives the same numbers with every compiler and standard library.
#pragma once
#include <cmath>
#include <cstdint>

namespace gm {

// splitmix64: 64 bits of state, passes BigCrush, and any seed is a good seed.
class Rng {
  public:
    explicit Rng(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next() {
        std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }
    // In (0, 1).
    double uniform() { return (static_cast<double>(next() >> 11) + 0.5) * 0x1p-53; }
    // Standard normal (Marsaglia's polar method: log and sqrt are all it asks of the maths library).
    double normal() {
        if (spare_ready_) {
            spare_ready_ = false;
            return spare_;
        }
        double x, y, r;
        do {
            x = 2.0 * uniform() - 1.0;
            y = 2.0 * uniform() - 1.0;
            r = x * x + y * y;
        } while (r >= 1.0 || r == 0.0);
        const double scale = std::sqrt(-2.0 * std::log(r) / r);
        spare_ = y * scale;
        spare_ready_ = true;
        return x * scale;
    }

  private:
    std::uint64_t state_;
    double spare_ = 0.0;
    bool spare_ready_ = false;
};

}  // namespace gm
