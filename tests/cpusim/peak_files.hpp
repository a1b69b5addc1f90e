// A peak kernel run on seeds from a file, its sums written to another: what the tests in Python look at.
#pragma once
#include <fstream>
#include <string>

#include "testing.hpp"

namespace cusim {

struct PeakFiles {
    unsigned long blocks;
    long long steps;
    std::string seeds, sums;

    // The program's exit code.
    template <class Word, class Sum, class Kernel>
    int run(Kernel kernel, unsigned threads) const {
        constexpr long long kWords = 1024;
        Array<Word> words(kWords);
        Array<Sum> out(static_cast<long long>(blocks) * threads);
        std::ifstream in(seeds, std::ios::binary);
        in.read(reinterpret_cast<char*>(words.data()), static_cast<std::streamsize>(kWords * sizeof(Word)));
        if (!in || in.peek() != std::ifstream::traits_type::eof()) return 3;  // as many seeds as the kernel takes
        launch({static_cast<unsigned>(blocks), threads}, kernel, words.data(), out.data(), steps);
        std::ofstream file(sums, std::ios::binary);
        file.write(reinterpret_cast<const char*>(out.data()),
                   static_cast<std::streamsize>(static_cast<std::size_t>(out.size()) * sizeof(Sum)));
        return file.good() ? 0 : 4;
    }
};

}  // namespace cusim
