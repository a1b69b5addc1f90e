// What the lanes of a warp do together, and copies that go on while the thread does: shared by both engines.
#pragma once
#include <type_traits>

#include "engine.hpp"

namespace cusim {

// A value of every lane of the warp, from its making until its end; all lanes make one together.
//     const WarpView<Fragment> lanes(mine);  ...  lanes[l].a[0]
template <class T>
class WarpView {
    static_assert(std::is_trivially_copyable<T>::value && sizeof(T) <= sizeof(WarpBuffer::lane[0]), "up to 128 bytes");

  public:
    explicit WarpView(const T& mine, unsigned mask = ~0U) : buffer_(state.buffers[warp()]), mask_(mask) {
        *reinterpret_cast<T*>(buffer_.lane[lane()]) = mine;
        warp_sync(mask_);
    }
    ~WarpView() { warp_sync(mask_); }  // nobody publishes again before all have read
    WarpView(const WarpView&) = delete;
    WarpView& operator=(const WarpView&) = delete;
    const T& operator[](unsigned lane_number) const { return *reinterpret_cast<const T*>(buffer_.lane[lane_number]); }

  private:
    WarpBuffer& buffer_;
    unsigned mask_;
};

// A source outside the warp, or in the part of a segment of `width` lanes that is not there: the own value.
template <class T>
T shuffle(unsigned mask, T mine, unsigned source) {
    const WarpView<T> lanes(mine, mask);
    return source < lanes_of(warp()) ? lanes[source] : mine;
}

inline unsigned ballot(unsigned mask, bool vote) {
    const WarpView<unsigned> lanes(vote ? 1U : 0U, mask);
    unsigned votes = 0;
    for (unsigned i = 0; i < lanes_of(warp()); ++i) {
        if (((mask >> i) & 1U) != 0) votes |= lanes[i] << i;
    }
    return votes;
}

// cp.async is carried out as late as the kernel allows, at its wait, and its target is poisoned when it is issued: a
// missing wait shows as NaN. Plain stores of words: compilers do not instrument memcpy and memset for TSan.
inline void cp_async(void* to, const void* from, unsigned bytes, unsigned from_bytes) {
    if (reinterpret_cast<std::uintptr_t>(to) % bytes != 0 || reinterpret_cast<std::uintptr_t>(from) % bytes != 0) {
        fail("a misaligned cp.async");
    }
    for (unsigned i = 0; i < bytes / 4; ++i) static_cast<volatile std::uint32_t*>(to)[i] = 0xffffffffU;
    current->open.push_back({to, from, bytes, from_bytes});
}

inline void cp_async_commit() {
    current->groups.push_back(std::move(current->open));
    current->open.clear();
}

inline void carry_out(const Copy& copy) {  // what is beyond from_bytes becomes zero
    for (unsigned i = 0; i < copy.bytes; ++i) {
        static_cast<volatile unsigned char*>(copy.to)[i] =
            i < copy.from_bytes ? static_cast<const volatile unsigned char*>(copy.from)[i] : 0;
    }
}

inline void cp_async_wait(unsigned may_stay) {  // all but the newest `may_stay` groups
    auto& groups = current->groups;
    while (groups.size() > may_stay) {
        for (const Copy& copy : groups.front()) carry_out(copy);
        groups.erase(groups.begin());
    }
}

}  // namespace cusim
