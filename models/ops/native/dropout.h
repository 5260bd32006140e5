// The masks of models/ops/dropout.py: 16 bits of numpy's SFC64 per entry, an entry is kept if they are below a limit.
//
// A mask is stored with one bit per entry. Every tile has its own seed, so threads draw tiles independently.
#pragma once

#include <array>
#include <vector>

#include "simd.h"
#if defined(__AVX2__) || defined(__AVX512BW__)
#include <immintrin.h>
#endif

namespace longhaul {

constexpr int64_t LEVELS = 1 << 16;  // of the 16 bits of an entry

// numpy.random.SFC64(seed), after NumPy's SeedSequence (M. E. O'Neill's seed_seq_fe128) and C. Doty-Humphrey's sfc64.
class SFC64 {
 public:
  explicit SFC64(uint64_t seed) {
    std::array<uint32_t, 4> pool{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), 0, 0};
    uint32_t constant = 0x43b0d7e5;
    const auto hashed = [&](uint32_t value) { return hash(value, constant, 0x931e8875); };
    for (uint32_t& word : pool) word = hashed(word);
    for (int from = 0; from < 4; ++from)
      for (int to = 0; to < 4; ++to)
        if (from != to) {
          const uint32_t mixed = 0xca01f9dd * pool[to] - 0x4973f715 * hashed(pool[from]);
          pool[to] = mixed ^ mixed >> 16;
        }
    constant = 0x8b51f9dd;
    std::array<uint64_t, 3> state{};
    for (int word = 0; word < 6; ++word)
      state[word / 2] |= static_cast<uint64_t>(hash(pool[word % 4], constant, 0x58f38ded)) << 32 * (word % 2);
    a_ = state[0], b_ = state[1], c_ = state[2];
    for (int round = 0; round < 12; ++round) next();
  }

  uint64_t next() {
    const uint64_t word = a_ + b_ + counter_++;
    a_ = b_ ^ b_ >> 11;
    b_ = c_ + (c_ << 3);
    c_ = (c_ << 24 | c_ >> 40) + word;
    return word;
  }

 private:
  static uint32_t hash(uint32_t value, uint32_t& constant, uint32_t factor) {
    value ^= constant;
    constant *= factor;
    value *= constant;
    return value ^ value >> 16;
  }

  uint64_t a_, b_, c_, counter_ = 1;
};

// Which of the 32 entries in 8 words are below the limit.
inline uint32_t compare(const uint64_t* words, int16_t limit) {
#if defined(__AVX512BW__)
  return _mm512_cmplt_epi16_mask(_mm512_loadu_si512(words), _mm512_set1_epi16(limit));
#elif defined(__AVX2__)
  const __m256i* half = reinterpret_cast<const __m256i*>(words);
  const __m256i limits = _mm256_set1_epi16(limit);
  const __m256i low = _mm256_cmpgt_epi16(limits, _mm256_loadu_si256(half));
  const __m256i high = _mm256_cmpgt_epi16(limits, _mm256_loadu_si256(half + 1));
  return _mm256_movemask_epi8(_mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xD8));
#else
  uint32_t bits = 0;
  for (int i = 0; i < 32; ++i) {
    const int16_t entry = static_cast<int16_t>(words[i / 4] >> 16 * (i % 4));
    bits |= static_cast<uint32_t>(entry < limit) << i;
  }
  return bits;
#endif
}

constexpr int64_t MARGIN = 64;  // bytes on either side of all masks, which whole vectors beyond a row may read

// Room for the bits of so many entries; `kept_lanes` may read a few bytes beyond them.
inline int64_t mask_bytes(int64_t entries) { return (entries + 31) / 32 * 4 + 8; }

// The mask of one seed: an entry is kept with the probability kept / LEVELS.
inline void draw_mask(uint64_t seed, int64_t entries, int64_t kept, uint8_t* bits) {
  SFC64 generator(seed);
  const int16_t limit = static_cast<int16_t>(kept - LEVELS / 2);
  for (int64_t first = 0; first < entries; first += 32) {
    uint64_t words[8];
    for (uint64_t& word : words) word = generator.next();
    const uint32_t block = compare(words, limit);
    std::memcpy(bits + first / 8, &block, sizeof block);
  }
}

// For the LANES entries from `entry` on: all bits set if kept, else none.
inline Ints kept_lanes(const uint8_t* bits, int64_t entry) {
  uint32_t block;
  std::memcpy(&block, bits + entry / 8, sizeof block);
  const Ints all_lanes = static_cast<int32_t>(block >> entry % 8) - Ints{};
  Ints lane;
  for (int i = 0; i < LANES; ++i) lane[i] = 1 << i;
  return (all_lanes & lane) != 0;
}

inline Vec keep(Ints kept, Vec x) { return kept ? x : Vec{}; }

}  // namespace longhaul
