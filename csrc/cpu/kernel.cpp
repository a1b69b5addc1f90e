#include "cpu/kernel.hpp"

namespace gm::cpu {

void Finding::look(std::int64_t at, long double want, long double have, long double error_bound) {
    ++elements;
    const long double error = std::fabs(have - want);
    const bool good = error <= error_bound;  // false for NaN
    if (!good && passed) {
        passed = false;
        index = at;
        expected = static_cast<double>(want);
        got = static_cast<double>(have);
        worst = static_cast<double>(error);
        bound = static_cast<double>(error_bound);
    }
    // Nearest to its bound: error / bound, compared without dividing by a bound of 0.
    if (passed && error_bound > 0 && (bound == 0 || error * bound > static_cast<long double>(worst) * error_bound)) {
        worst = static_cast<double>(error);
        bound = static_cast<double>(error_bound);
    }
}

void Finding::merge(const Finding& other) {
    if (other.elements == 0) return;
    elements += other.elements;
    const bool replace = !other.passed
                             ? (passed || other.index < index)
                             : passed && other.bound > 0 && (bound == 0 || other.worst * bound > worst * other.bound);
    if (!replace) return;
    const std::int64_t all = elements;
    *this = other;
    elements = all;
}

}  // namespace gm::cpu
