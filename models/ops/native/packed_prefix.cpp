// Causal linear attention through slots: models/ops/packed_prefix.py has the equations.
//
// S_k is kept as (E, L) and S_v as (L, E), so that z, u and y run along vectors. In backward, with X the sums of
// q_s' dz_s and of u_s' dy_s over the tokens s >= t,
//
//   du = dy S_v',   dz = u * (du - u . du),   dq = dz S_k',   dk = a X_k',   dv = a X_v,   da = k X_k + v X_v'
//
// where 1/t is part of q and of dy. A first walk makes u, dz and dq, a second one from the right the rest; u and dz of
// the heads at work (2 N L numbers each) are handed from one to the other.
//
//   B batch, H heads, N length, E head width, F memory width, L slots

#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <optional>
#include <tuple>
#include <vector>

#include "dropout.h"
#include "outer_sums.h"

namespace longhaul {
namespace {

using at::Tensor;
using Numbers = std::vector<float>;

const float LN2 = 0.693147180559945f, LEAST = std::numeric_limits<float>::lowest();

// w(x) and its slope: log2(1 + 2^x), or e^x and x + 1 for x > 0. What is not a number stays one.
inline void activate(Vec x, bool softplus, Vec& value, Vec& slope) {
  const Ints positive = x > Vec{};
  if (softplus) {
    const Vec y = exponential((positive ? -x : x) * LN2);  // 2^-|x|
    // log(1 + y) = 2 artanh s, s = y / (2 + y) <= 1/3: its series keeps every digit of a small y
    const Vec s = y / (2.0f + y), s2 = s * s;
    Vec series = all(1.0f / 15.0f);
    for (int n = 13; n >= 1; n -= 2) series = series * s2 + 1.0f / static_cast<float>(n);
    value = (positive ? x : Vec{}) + series * s * (2.0f / LN2);
    slope = (positive ? all(1.0f) : y) / (1.0f + y);
  } else {
    const Vec y = exponential(positive ? Vec{} : x);
    value = positive ? x + 1.0f : y;
    slope = y;
  }
  value = x == x ? value : x;
}

// softmax of a row, in place
inline void softmax(float* row, int64_t slots, const bool* unread) {
  if (unread != nullptr)
    for (int64_t l = 0; l < slots; ++l)
      if (unread[l]) row[l] = LEAST;
  Vec top = load(row), total{};
  for (int64_t l = LANES; l < slots; l += LANES) top = larger(load(row + l), top);
  const Vec most = all(largest(top));
  for (int64_t l = 0; l < slots; l += LANES) {
    const Vec below = load(row + l) - most, weight = below == below ? exponential(below) : below;
    store(row + l, weight);
    total += weight;
  }
  const float inverse = 1.0f / sum(total);
  for (int64_t l = 0; l < slots; l += LANES) store(row + l, load(row + l) * inverse);
}

// dz = u * (du - u . du) of a row, in place of du
inline void softmax_backward(const float* u, float* du, int64_t slots) {
  Vec inner{};
  for (int64_t l = 0; l < slots; l += LANES) inner += load(u + l) * load(du + l);
  const Vec mean = all(sum(inner));
  for (int64_t l = 0; l < slots; l += LANES) store(du + l, load(u + l) * (load(du + l) - mean));
}

// The masks of a and u that torch's form draws for its tiles.
struct Masks {
  const uint8_t* bits = nullptr;
  const int64_t *first = nullptr, *second = nullptr;  // (B, N) entries of a and of u of a token's first head
  const int64_t* per_head = nullptr;                  // (N) entries
  float factor = 1.0f;

  Masks(const std::optional<Tensor>& bits_, const std::optional<Tensor>& first_, const std::optional<Tensor>& second_,
        const std::optional<Tensor>& per_head_, double factor_)
      : factor(static_cast<float>(factor_)) {
    if (!bits_) return;
    bits = bits_->const_data_ptr<uint8_t>();
    first = first_->const_data_ptr<int64_t>();
    second = second_->const_data_ptr<int64_t>();
    per_head = per_head_->const_data_ptr<int64_t>();
  }

  // The slots of a token times the factors of one mask.
  void apply(int64_t entry, int64_t slots, float* row) const {
    for (int64_t l = 0; l < slots; l += LANES)
      store(row + l, keep(kept_lanes(bits, entry + l), load(row + l) * factor));
  }
};

// The inputs of a call, as kernels read them. Where memory is E wide, k and v are the same.
struct Call {
  Tensor q, memory, pack_k, pack_q;
  std::optional<Tensor> padding, slot_mask;
  float scale;
  bool softplus;
  Masks masks;

  Call(const Tensor& q_, const Tensor& memory_, const Tensor& pack_k_, const Tensor& pack_q_,
       const std::optional<Tensor>& padding_, const std::optional<Tensor>& slot_mask_, double scale_, bool softplus_,
       const Masks& masks_)
      : q(with_whole_rows(q_)), memory(with_whole_rows(memory_)), pack_k(with_whole_rows(pack_k_)),
        pack_q(with_whole_rows(pack_q_)), padding(mask(padding_, q.size(0), q.size(2))),
        slot_mask(mask(slot_mask_, q.size(0), pack_q.size(2))), scale(static_cast<float>(scale_)), softplus(softplus_),
        masks(masks_) {
    const auto fits = [&](const Tensor& x, int64_t dims) {
      return x.sizes().slice(0, dims) == q.sizes().slice(0, dims);
    };
    TORCH_CHECK(fits(memory, 3) && fits(pack_k, 4) && fits(pack_q, 2) && pack_q.size(3) == q.size(3) &&
                    (tied() || memory.size(3) == 2 * q.size(3)),
                "shapes of q, memory, pack_k and pack_q do not fit: ", q.sizes(), ", ", memory.sizes(), ", ",
                pack_k.sizes(), ", ", pack_q.sizes());
  }

  bool tied() const { return memory.size(3) == q.size(3); }
  Tensor keys(const Tensor& x) const { return x.narrow(3, 0, q.size(3)); }
  Tensor values(const Tensor& x) const { return x.narrow(3, memory.size(3) - q.size(3), q.size(3)); }
};

// Heads of one example that take turns, and a chunk of one of them.
class Heads {
 public:
  Heads(const Call& call, int64_t b, int64_t h, int64_t count)
      : length(call.q.size(2)), width(call.q.size(3)), slots(call.pack_q.size(2)), chunks((length + CHUNK - 1) / CHUNK),
        unread(call.slot_mask ? call.slot_mask->const_data_ptr<bool>() + b * slots : nullptr), q(CHUNK * width), k(q),
        v(q), pack_k(q), a(CHUNK * slots), slope(a), share(length), factor(length), softplus_(call.softplus),
        masks_(call.masks), example_(b * length), head_(h),
        hidden_(call.padding ? call.padding->const_data_ptr<bool>() + b * length : nullptr) {
    int64_t seen = 0;
    for (int64_t t = 0; t < length; ++t) {
      seen += hidden_ == nullptr || !hidden_[t];
      share[t] = 1.0f / static_cast<float>(std::max<int64_t>(seen, 1));
      factor[t] = share[t] * call.scale;
    }
    const Tensor keys = call.keys(call.memory), values = call.values(call.memory);
    for (int64_t i = h; i < h + count; ++i) {
      heads_.push_back({{call.q, b, i}, {keys, b, i}, {values, b, i}, {call.pack_k, b, i}});
      Numbers rows(slots * width), columns(rows);
      Tokens(call.pack_q, b, i).take(0, slots, rows.data());
      for (float& x : rows) x *= call.scale;
      transpose(slots, width, rows.data(), width, columns.data(), slots);
      queries.push_back(rows);
      columns_.push_back(columns);
    }
  }

  // u of a chunk of head i after dropout.
  void drop(int64_t i, int64_t first, int64_t count, float* u) const {
    if (masks_.bits == nullptr) return;
    for (int64_t t = 0; t < count; ++t) masks_.apply(entry(masks_.second, i, first + t), slots, u + t * slots);
  }

  // How many tokens there are.
  int64_t take(int64_t i, int64_t chunk, bool back) {
    const int64_t first = chunk * CHUNK, count = std::min(CHUNK, length - first);
    const auto turn = [&](const Tokens& x) { return back ? x.backward() : x; };
    turn(heads_[i].q).take(first, count, q.data(), &factor[first]);
    turn(heads_[i].k).take(first, count, k.data());
    turn(heads_[i].v).take(first, count, v.data());
    turn(heads_[i].pack_k).take(first, count, pack_k.data());
    high_product(count, width, slots, pack_k.data(), width, 1, columns_[i].data(), a.data());
    for (int64_t t = 0; t < count; ++t) {
      const bool none = hidden_ != nullptr && hidden_[first + t];
      for (int64_t l = t * slots; l < (t + 1) * slots; l += LANES) {
        Vec value{}, change{};
        if (!none) activate(load(&a[l]), softplus_, value, change);
        store(&a[l], value);
        store(&slope[l], change);
      }
      if (masks_.bits == nullptr) continue;
      for (Numbers* numbers : {&a, &slope})
        masks_.apply(entry(masks_.first, i, first + t), slots, numbers->data() + t * slots);
    }
    return count;
  }

  const int64_t length, width, slots, chunks;
  const bool* const unread;
  Numbers q, k, v, pack_k;       // (CHUNK, E); q times E^-1/2 / t
  Numbers a, slope;              // (CHUNK, L), of w; both are 0 at hidden tokens
  Numbers share, factor;         // (N), 1/t and E^-1/2 / t
  std::vector<Numbers> queries;  // (L, E) of each head, scaled

 private:
  struct Head {
    Tokens q, k, v, pack_k;
  };
  int64_t entry(const int64_t* entries, int64_t i, int64_t token) const {
    return entries[example_ + token] + (head_ + i) * masks_.per_head[token];
  }

  bool softplus_;
  const Masks& masks_;
  int64_t example_, head_;
  const bool* hidden_;
  std::vector<Head> heads_;
  std::vector<Numbers> columns_;  // (E, L)
};

Tensor forward(const Tensor& q, const Tensor& memory, const Tensor& pack_k, const Tensor& pack_q,
               const std::optional<Tensor>& padding, const std::optional<Tensor>& slot_mask,
               const std::optional<Tensor>& bits, const std::optional<Tensor>& first,
               const std::optional<Tensor>& second, const std::optional<Tensor>& per_head, double factor, double scale,
               bool softplus) {
  const Call call(q, memory, pack_k, pack_q, padding, slot_mask, scale, softplus,
                  Masks(bits, first, second, per_head, factor));
  Tensor out = at::empty_like(call.q);
  for_heads(call.q, [&](int64_t b, int64_t h, int64_t number) {
    Heads x(call, b, h, number);
    std::vector<OuterSums> keys(number, OuterSums(x.width, x.slots)), values(number, OuterSums(x.slots, x.width));
    Numbers z(CHUNK * x.slots), y(CHUNK * x.width);
    for (int64_t chunk = 0; chunk < x.chunks; ++chunk)
      for (int64_t i = 0; i < number; ++i) {
        const int64_t first = chunk * CHUNK, count = x.take(i, chunk, false);
        keys[i].run<false>(count, x.k.data(), x.a.data(), x.q.data(), z.data());
        for (int64_t t = 0; t < count; ++t) softmax(&z[t * x.slots], x.slots, x.unread);
        x.drop(i, first, count, z.data());
        values[i].run<false>(count, x.a.data(), x.v.data(), z.data(), y.data());
        Tokens(out, b, h + i).put(first, count, y.data(), &x.share[first]);
      }
  });
  return out;
}

// From the left: u after dropout and dz (number, N, L), and dq.
void queries_backward(Heads& x, const Tensor& grad, int64_t b, int64_t h, int64_t number, float* u, float* dz,
                      const Tensor& dq) {
  std::vector<OuterSums> keys(number, OuterSums(x.width, x.slots)), values(keys),
      turned(number, OuterSums(x.slots, x.width));
  Numbers dy(CHUNK * x.width), gradient(dy);
  for (int64_t chunk = 0; chunk < x.chunks; ++chunk)
    for (int64_t i = 0; i < number; ++i) {
      const int64_t first = chunk * CHUNK, count = x.take(i, chunk, false), slots = x.slots;
      float *weights = u + (i * x.length + first) * slots, *scores = dz + (i * x.length + first) * slots;
      Tokens(grad, b, h + i).take(first, count, dy.data(), &x.share[first]);
      keys[i].run<false>(count, x.k.data(), x.a.data(), x.q.data(), weights);
      values[i].run<false>(count, x.v.data(), x.a.data(), dy.data(), scores);
      x.drop(i, first, count, scores);
      for (int64_t t = 0; t < count; ++t) {
        softmax(weights + t * slots, slots, x.unread);
        softmax_backward(weights + t * slots, scores + t * slots, slots);
      }
      x.drop(i, first, count, weights);
      turned[i].run<false>(count, x.a.data(), x.k.data(), scores, gradient.data());
      Tokens(dq, b, h + i).put(first, count, gradient.data(), &x.factor[first]);
    }
}

// From the right: dk, dv, and the gradients of what makes a.
void memory_backward(Heads& x, const Tensor& grad, int64_t b, int64_t h, int64_t number, const float* u,
                     const float* dz, bool tied, const Tensor& dk, const Tensor& dv, const Tensor& dpack_k,
                     const Tensor& dpack_q, float scale) {
  const int64_t slots = x.slots, width = x.width;
  std::vector<OuterSums> keys(number, OuterSums(slots, width)), values(keys),
      turned_keys(number, OuterSums(width, slots)), turned_values(turned_keys);
  Numbers dy(CHUNK * width), gradient(dy), da(CHUNK * slots), part(slots * width);
  std::vector<Numbers> total(number, part), error(total);
  for (int64_t chunk = x.chunks - 1; chunk >= 0; --chunk)
    for (int64_t i = 0; i < number; ++i) {
      const int64_t first = chunk * CHUNK, count = x.take(i, chunk, true);
      const float *weights = u + (i * x.length + first) * slots, *scores = dz + (i * x.length + first) * slots;
      Tokens(grad, b, h + i).backward().take(first, count, dy.data(), &x.share[first]);
      keys[i].run<true>(count, scores, x.q.data(), x.a.data(), gradient.data());
      if (!tied) Tokens(dk, b, h + i).put(first, count, gradient.data());
      values[i].run<true>(count, weights, dy.data(), x.a.data(), gradient.data(), tied);
      Tokens(dv, b, h + i).put(first, count, gradient.data());
      turned_keys[i].run<true>(count, x.q.data(), scores, x.k.data(), da.data());
      turned_values[i].run<true>(count, dy.data(), weights, x.v.data(), da.data(), true);
      for (int64_t n = 0; n < count * slots; n += LANES) store(&da[n], load(&da[n]) * load(&x.slope[n]));
      high_product(count, slots, width, da.data(), slots, 1, x.queries[i].data(), gradient.data());
      Tokens(dpack_k, b, h + i).put(first, count, gradient.data());
      high_product(slots, count, width, da.data(), 1, slots, x.pack_k.data(), part.data());
      for (int64_t n = 0; n < slots * width; n += LANES) {
        Vec sum = load(&total[i][n]), rest = load(&error[i][n]);
        add_exactly(load(&part[n]), sum, rest);
        store(&total[i][n], sum);
        store(&error[i][n], rest);
      }
    }
  const Numbers scales(slots, scale);
  for (int64_t i = 0; i < number; ++i) Tokens(dpack_q, b, h + i).put(0, slots, total[i].data(), scales.data());
}

std::tuple<Tensor, Tensor, Tensor, Tensor> backward(const Tensor& grad_, const Tensor& q, const Tensor& memory,
                                                    const Tensor& pack_k, const Tensor& pack_q,
                                                    const std::optional<Tensor>& padding,
                                                    const std::optional<Tensor>& slot_mask,
                                                    const std::optional<Tensor>& bits,
                                                    const std::optional<Tensor>& first,
                                                    const std::optional<Tensor>& second,
                                                    const std::optional<Tensor>& per_head, double factor, double scale,
                                                    bool softplus) {
  const Tensor grad = with_whole_rows(grad_);
  const Call call(q, memory, pack_k, pack_q, padding, slot_mask, scale, softplus,
                  Masks(bits, first, second, per_head, factor));
  Tensor dq = at::empty_like(call.q), dmemory = at::empty_like(call.memory), dpack_k = at::empty_like(call.pack_k),
         dpack_q = at::empty_like(call.pack_q);
  const Tensor dk = call.keys(dmemory), dv = call.values(dmemory);
  // for the heads at work; taken here, since a thread's own large memory is returned and touched anew at every call
  const int64_t numbers = std::min(TOGETHER, q.size(1)) * q.size(2) * pack_q.size(2);
  const int64_t threads = std::min<int64_t>(at::get_num_threads(), q.size(0) * q.size(1));
  Tensor room = at::empty({threads, 2, numbers}, call.q.options());
  for_heads(call.q, [&](int64_t b, int64_t h, int64_t number) {
    Heads x(call, b, h, number);
    float *u = room.mutable_data_ptr<float>() + at::get_thread_num() * 2 * numbers, *dz = u + numbers;
    queries_backward(x, grad, b, h, number, u, dz, dq);
    memory_backward(x, grad, b, h, number, u, dz, call.tied(), dk, dv, dpack_k, dpack_q, call.scale);
  });
  return {dq, dmemory, dpack_k, dpack_q};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(longhaul, m) {
  m.def("packed_prefix_forward(Tensor q, Tensor memory, Tensor pack_k, Tensor pack_q, Tensor? padding,"
        " Tensor? slot_mask, Tensor? bits, Tensor? first, Tensor? second, Tensor? per_head, float factor, float scale,"
        " bool softplus) -> Tensor",
        &forward);
  m.def("packed_prefix_backward(Tensor grad, Tensor q, Tensor memory, Tensor pack_k, Tensor pack_q, Tensor? padding,"
        " Tensor? slot_mask, Tensor? bits, Tensor? first, Tensor? second, Tensor? per_head, float factor, float scale,"
        " bool softplus) -> (Tensor, Tensor, Tensor, Tensor)",
        &backward);
}

}  // namespace longhaul
