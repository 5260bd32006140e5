// All masks of a call at once, for kernels that do not cut the tiles in which torch's form draws.

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <tuple>

#include "dropout.h"

namespace longhaul {
namespace {

using at::Tensor;

// One mask per seed with so many entries: all bits, and the entry at which each mask begins.
std::tuple<Tensor, Tensor> masks(const Tensor& seeds_, const Tensor& entries_, int64_t kept) {
  const Tensor seeds = seeds_.contiguous(), entries = entries_.contiguous();
  const int64_t count = seeds.numel();
  const int64_t *seed = seeds.const_data_ptr<int64_t>(), *sizes = entries.const_data_ptr<int64_t>();
  Tensor starts = at::empty({count}, seeds.options());
  int64_t* start = starts.mutable_data_ptr<int64_t>();
  int64_t bytes = MARGIN;
  for (int64_t i = 0; i < count; ++i) {
    start[i] = 8 * bytes;
    bytes += mask_bytes(sizes[i]);
  }
  Tensor bits = at::empty({bytes + MARGIN}, seeds.options().dtype(at::kByte));
  uint8_t* data = bits.mutable_data_ptr<uint8_t>();
  at::parallel_for(0, (count + GENERATORS - 1) / GENERATORS, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * GENERATORS; i < std::min(end * GENERATORS, count); i += GENERATORS) {
      const int64_t number = std::min(GENERATORS, count - i);
      uint8_t* to[GENERATORS];
      uint64_t from[GENERATORS];
      for (int64_t j = 0; j < number; ++j) to[j] = data + start[i + j] / 8, from[j] = seed[i + j];
      draw_masks(number, from, sizes + i, kept, to);
    }
  });
  return {bits, starts};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(longhaul, m) {
  m.def("dropout_masks(Tensor seeds, Tensor entries, int kept) -> (Tensor, Tensor)", &masks);
}

}  // namespace longhaul
