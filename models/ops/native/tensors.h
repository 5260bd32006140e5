// Tensors of heads, (B, H, N, E), as the kernels of this folder take and return them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <optional>

namespace longhaul {

// Rows without gaps; their distance is free, so that a split projection is read where it lies.
inline at::Tensor with_whole_rows(const at::Tensor& x) { return x.stride(-1) == 1 ? x : x.contiguous(); }

inline std::optional<at::Tensor> contiguous(const std::optional<at::Tensor>& x) {
  return x ? std::optional(x->contiguous()) : x;
}

// Room for (B, H, N, E) as a view of (B, N, H, E) memory, which a projection reads without a copy.
inline at::Tensor like_a_projection(const at::Tensor& q) {
  return at::empty({q.size(0), q.size(2), q.size(1), q.size(3)}, q.options()).transpose(1, 2);
}

// One head of one example: rows of floats.
struct Rows {
  float* data;
  int64_t stride;
  Rows(const at::Tensor& x, int64_t b, int64_t h)
      : data(const_cast<float*>(x.const_data_ptr<float>()) + b * x.stride(0) + h * x.stride(1)), stride(x.stride(2)) {}
  float* at(int64_t row) const { return data + row * stride; }
};

}  // namespace longhaul
