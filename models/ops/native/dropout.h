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

// C. Doty-Humphrey's sfc64; `Word` is a 64-bit number, or a vector of the numbers of several generators.
template <typename Word>
struct SFC64 {
  Word a, b, c, counter;

  void next(Word& word) {
    word = a + b + counter;
    counter += 1;
    a = b ^ b >> 11;
    b = c + (c << 3);
    c = (c << 24 | c >> 40) + word;
  }
};

inline uint32_t seed_hash(uint32_t value, uint32_t& constant, uint32_t factor) {
  value ^= constant;
  constant *= factor;
  value *= constant;
  return value ^ value >> 16;
}

// numpy.random.SFC64(seed), after NumPy's SeedSequence (M. E. O'Neill's seed_seq_fe128).
inline SFC64<uint64_t> seeded(uint64_t seed) {
  std::array<uint32_t, 4> pool{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), 0, 0};
  uint32_t constant = 0x43b0d7e5;
  const auto hashed = [&](uint32_t value) { return seed_hash(value, constant, 0x931e8875); };
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
    state[word / 2] |= static_cast<uint64_t>(seed_hash(pool[word % 4], constant, 0x58f38ded)) << 32 * (word % 2);
  SFC64<uint64_t> generator{state[0], state[1], state[2], 1};
  uint64_t word;
  for (int round = 0; round < 12; ++round) generator.next(word);
  return generator;
}

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

// An 8 x 8 matrix of nibbles, a row per number and the lowest nibble first, is transposed: pairs of rows, then of pairs,
// then of fours exchange what does not lie on the diagonal.
inline void transpose_nibbles(uint32_t* rows) {
  for (int width = 1; width < 8; width *= 2) {
    const uint32_t lower = width == 1 ? 0x0F0F0F0F : width == 2 ? 0x00FF00FF : 0x0000FFFF;
    for (int first = 0; first < 8; first += 2 * width)
      for (int row = first; row < first + width; ++row) {
        const uint32_t moved = (rows[row] >> 4 * width ^ rows[row + width]) & lower;
        rows[row + width] ^= moved;
        rows[row] ^= moved << 4 * width;
      }
  }
}

// The mask of one seed with so many entries: an entry is kept with the probability kept / LEVELS.
inline void draw_mask(uint64_t seed, int64_t entries, int64_t kept, uint8_t* bits) {
  SFC64<uint64_t> generator = seeded(seed);
  const int16_t limit = static_cast<int16_t>(kept - LEVELS / 2);
  for (int64_t first = 0; first < entries; first += 32) {
    uint64_t words[8];
    for (uint64_t& word : words) generator.next(word);
    const uint32_t block = compare(words, limit);
    std::memcpy(bits + first / 8, &block, sizeof block);
  }
}

constexpr int64_t GENERATORS = 8;  // generators whose words one vector holds
constexpr int64_t FEW = 3;

// The masks of `count` seeds, at most GENERATORS, with so many entries each. A word depends on the one before it, so
// the generators take turns instead of waiting for themselves. A few are faster one by one than in a vector.
inline void draw_masks(int64_t count, const uint64_t* seeds, const int64_t* entries, int64_t kept,
                       uint8_t* const* bits) {
  if (count < FEW) {
    for (int64_t i = 0; i < count; ++i) draw_mask(seeds[i], entries[i], kept, bits[i]);
    return;
  }
  typedef uint64_t Words __attribute__((vector_size(GENERATORS * 8)));
  SFC64<Words> generators{};
  int64_t most = 0;
  for (int64_t i = 0; i < count; ++i) {
    const SFC64<uint64_t> generator = seeded(seeds[i]);
    generators.a[i] = generator.a, generators.b[i] = generator.b, generators.c[i] = generator.c;
    generators.counter[i] = generator.counter;
    most = std::max(most, entries[i]);
  }
  const int16_t limit = static_cast<int16_t>(kept - LEVELS / 2);
  for (int64_t first = 0; first < most; first += 32) {
    uint32_t blocks[8];  // of four entries of each mask, then of 32 entries of one mask
    for (uint32_t& block : blocks) {
      Words words;
      generators.next(words);
      uint64_t stored[GENERATORS];
      std::memcpy(stored, &words, sizeof words);
      block = compare(stored, limit);
    }
    transpose_nibbles(blocks);
    for (int64_t i = 0; i < count; ++i)
      if (first < entries[i]) std::memcpy(bits[i] + first / 8, &blocks[i], sizeof blocks[i]);
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
