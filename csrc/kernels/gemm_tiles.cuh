// What the GEMM kernels share: the order in which blocks take their tiles of C.
#pragma once
#include "types.cuh"

namespace gm {

struct TileAt {
    unsigned row, column;  // in tiles
};

// Tile number `tile` of a grid of rows x columns tiles: down a group of 8 rows, then one column on. The blocks that run
// at once then cover a nearly square part of C, so that they share what they read of A and B in L2; in row order a wave
// of blocks would read all of B for a few rows of A.
__device__ __forceinline__ TileAt tile_at(unsigned tile, unsigned rows, unsigned columns) {
    constexpr unsigned group = 8;
    const unsigned first = tile / (group * columns) * group;
    const unsigned within = tile - first * columns;
    const unsigned height = rows - first < group ? rows - first : group;
    return {first + within % height, within / height};
}

__device__ __forceinline__ unsigned tiles_of(index size, int tile) {
    return static_cast<unsigned>((size + tile - 1) / tile);
}

}  // namespace gm
