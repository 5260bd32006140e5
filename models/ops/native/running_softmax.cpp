// The running softmax: models/ops/running_softmax.py has the equations.
//
// Every token is referred to M_t, the largest logit up to it: x_t = e^{theta_t - M_t}, and what came before shrinks by
// f_t = e^{M_{t-1} - M_t} <= 1 where a latent's largest logit grows. No logit can overflow, and few tokens move M. In
// backward, with Z_t = sum_{s>=t} e^{M_t - M_s} gamma_s' do_s, which shrinks by the same factors from the right:
//
//   dp = do S' / alpha,  dalpha = -gamma dp,  dv = x Z,  dtheta = x (v Z' + sum_{s>=t} e^{M_t - M_s} dalpha_s)
//
// S and Z are also kept transposed: each product then runs along vectors, and no sum across a vector is needed.
//
//   B batch, H heads, N length, L latents, E width of a value

#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <optional>
#include <tuple>
#include <vector>

#include "outer_sums.h"

namespace longhaul {
namespace {

using at::Tensor;

const float LOWEST = -1e30f;  // M before the first seen key: finite, so that nothing takes inf - inf

// A chunk's exponentials and what goes with them, all (CHUNK, L), and the state that goes on to the next chunk.
class Exponentials {
 public:
  explicit Exponentials(int64_t latents)
      : latents_(latents), state_(3 * latents), x_(CHUNK * latents), inverse_(x_), gamma_(x_), top_(x_), step_(x_),
        since_(x_), until_(x_), moved_(CHUNK * latents / LANES) {}

  void clear() {
    std::fill(state_.begin(), state_.end(), 0.0f);
    std::fill(state_.begin(), state_.begin() + latents_, LOWEST);
  }
  int64_t size() const { return 3 * latents_; }
  void keep(float* to) const { std::memcpy(to, state_.data(), state_.size() * sizeof(float)); }
  void restart(const float* from) { std::memcpy(state_.data(), from, state_.size() * sizeof(float)); }

  // Tokens from `first` on; hidden ones have x = 0.
  void run(const Tokens& p, const Tokens& theta, const bool* hidden, int64_t first, int64_t count) {
    count_ = count;
    moves_ = false;
    for (int64_t l = 0; l < latents_; l += LANES) {
      float *largest = state_.data() + l, *sum = largest + latents_, *rest = sum + latents_;
      const Vec start = load(largest), before = load(sum), error = load(rest);
      Vec top = start, since = all(1.0f), inside{};
      for (int64_t t = 0; t < count; ++t) {
        const int64_t at = t * latents_ + l;
        Vec x{}, step = all(1.0f);
        p.fetch(first + t, l);
        theta.fetch(first + t, l);
        bool moved = false;
        if (hidden == nullptr || !hidden[first + t]) {
          const Vec logit = load(theta.at(first + t) + l);
          const Ints larger_logit = logit > top;
          moved = any(larger_logit);
          if (moved) {
            const Vec next = larger_logit ? logit : top;
            step = exponential(top - next);
            inside *= step;
            since = exponential(start - next);
            top = next;
            moves_ = true;
          }
          const Vec below = logit - top;
          x = below == below ? exponential(below) : below;  // not a number stays one
        }
        inside += x;
        const Vec alpha = before * since + inside, inverse = alpha == 0.0f ? Vec{} : 1.0f / alpha;
        store(x_.data() + at, x);
        store(inverse_.data() + at, inverse);
        store(gamma_.data() + at, load(p.at(first + t) + l) * inverse);
        store(top_.data() + at, top);
        store(step_.data() + at, step);
        store(since_.data() + at, since);
        moved_[at / LANES] = moved;
      }
      Vec total = before * since, rounding = error * since;
      add_exactly(inside, total, rounding);
      store(largest, top);
      store(sum, total);
      store(rest, rounding);
    }
  }

  // Factors from each token to the right edge, which `run` does not make.
  void look_right() {
    if (!moves_) return;
    for (int64_t k = 0; k < count_ * latents_; k += LANES)
      store(until_.data() + k, exponential(load(top_.data() + k) - load(state_.data() + k % latents_)));
  }

  // Sums of `dalpha` from each token on, in place. `after`, (2, L), is the sum after the chunk and its rounding error.
  void sum_from_the_right(float* dalpha, float* after) const {
    for (int64_t l = 0; l < latents_; l += LANES) {
      Vec total = load(after + l), error = load(after + latents_ + l), inside{};
      for (int64_t t = count_ - 1; t >= 0; --t) {
        const int64_t at = t * latents_ + l;
        inside += load(dalpha + at);
        store(dalpha + at, (moves_ ? total * load(until_.data() + at) : total) + inside);
        if (moved_[at / LANES]) inside *= load(step_.data() + at);
      }
      if (moves_) {
        total *= load(whole() + l);
        error *= load(whole() + l);
      }
      add_exactly(inside, total, error);
      store(after + l, total);
      store(after + latents_ + l, error);
    }
  }

  const float* x() const { return x_.data(); }
  const float* gamma() const { return gamma_.data(); }
  const float* inverse() const { return inverse_.data(); }  // 1 / alpha
  Along along(Along side) const { return moves_ ? side : Along::NONE; }
  Shrink from_left() const { return {step_.data(), whole(), since_.data(), moved_.data()}; }
  Shrink from_right() const { return {step_.data(), whole(), until_.data(), moved_.data()}; }

 private:
  const float* whole() const { return since_.data() + (count_ - 1) * latents_; }

  int64_t latents_, count_ = 0;
  bool moves_ = false;
  std::vector<float> state_;  // M, alpha and its rounding error
  std::vector<float> x_, inverse_, gamma_, top_, step_, since_, until_;
  std::vector<uint8_t> moved_;
};

// Heads of one example that take turns, and what each hands from one chunk to the next.
class Heads {
 public:
  Heads(const Tensor& p, const Tensor& theta, const Tensor& v, const std::optional<Tensor>& padding, int64_t b,
        int64_t h, int64_t count)
      : length(v.size(2)), latents(p.size(3)), width(v.size(3)),
        hidden(padding ? padding->const_data_ptr<bool>() + b * length : nullptr), weights(latents),
        values(CHUNK * width) {
    for (int64_t i = 0; i < count; ++i) heads.push_back({{p, b, h + i}, {theta, b, h + i}, {v, b, h + i}});
  }

  int64_t size() const { return static_cast<int64_t>(heads.size()); }
  int64_t chunks() const { return (length + CHUNK - 1) / CHUNK; }

  // Exponentials and values of a chunk of head i, from the state before it to the one after it, which may be null.
  // Returns how many tokens it has.
  int64_t take(int64_t i, int64_t chunk, const float* before, float* after, bool back) {
    const int64_t first = chunk * CHUNK, count = std::min(CHUNK, length - first);
    const Head head = back ? Head{heads[i].p.backward(), heads[i].theta.backward(), heads[i].v.backward()} : heads[i];
    chunk == 0 ? weights.clear() : weights.restart(before);
    weights.run(head.p, head.theta, hidden, first, count);
    if (after != nullptr) weights.keep(after);
    head.v.take(first, count, values.data(), nullptr, hidden);
    return count;
  }

  struct Head {
    Tokens p, theta, v;
  };
  int64_t length, latents, width;
  const bool* hidden;
  Exponentials weights;
  std::vector<float> values;
  std::vector<Head> heads;
};

Tensor forward(const Tensor& p_, const Tensor& theta_, const Tensor& v_, const std::optional<Tensor>& padding_) {
  const Tensor p = with_whole_rows(p_), theta = with_whole_rows(theta_), v = with_whole_rows(v_);
  const auto padding = mask(padding_, v.size(0), v.size(2));
  Tensor out = like_a_projection(v);
  for_heads(v, [&](int64_t b, int64_t h, int64_t number) {
    Heads heads(p, theta, v, padding, b, h, number);
    const int64_t size = heads.weights.size();
    std::vector<OuterSums> sums(number, OuterSums(heads.latents, heads.width));
    std::vector<float> states(number * size), o(CHUNK * heads.width);
    for (int64_t chunk = 0; chunk < heads.chunks(); ++chunk)
      for (int64_t i = 0; i < number; ++i) {
        float* state = states.data() + i * size;
        const int64_t count = heads.take(i, chunk, state, state, false);
        const Exponentials& w = heads.weights;
        sums[i].run<false>(count, w.x(), heads.values.data(), w.gamma(), o.data(), false, w.along(Along::ROWS),
                           w.from_left());
        Tokens(out, b, h + i).put(chunk * CHUNK, count, o.data());
      }
  });
  return out;
}

std::tuple<Tensor, Tensor, Tensor> backward(const Tensor& grad_, const Tensor& p_, const Tensor& theta_,
                                            const Tensor& v_, const std::optional<Tensor>& padding_) {
  const Tensor grad = with_whole_rows(grad_), p = with_whole_rows(p_), theta = with_whole_rows(theta_),
               v = with_whole_rows(v_);
  const auto padding = mask(padding_, v.size(0), v.size(2));
  Tensor dp = at::empty_like(p), dtheta = at::empty_like(theta), dv = at::empty_like(v);
  for_heads(v, [&](int64_t b, int64_t h, int64_t number) {
    Heads heads(p, theta, v, padding, b, h, number);
    Exponentials& w = heads.weights;
    const int64_t latents = heads.latents, width = heads.width, size = w.size(), chunks = heads.chunks();
    std::vector<float> states(number * chunks * size);  // after each chunk
    std::vector<float> dout(CHUNK * width), dvalues(dout), dlatents(CHUNK * latents), dalpha(dlatents);
    const float *values = heads.values.data(), *x = w.x(), *gamma = w.gamma();
    {
      std::vector<OuterSums> past(number, OuterSums(width, latents));  // S'
      for (int64_t chunk = 0; chunk < chunks; ++chunk)
        for (int64_t i = 0; i < number; ++i) {
          float* state = states.data() + (i * chunks + chunk) * size;
          const int64_t first = chunk * CHUNK, count = heads.take(i, chunk, state - size, state, false);
          Tokens(grad, b, h + i).take(first, count, dout.data());
          past[i].run<false>(count, values, x, dout.data(), dlatents.data(), false, w.along(Along::COLUMNS),
                             w.from_left());
          for (int64_t k = 0; k < count * latents; k += LANES)
            store(dlatents.data() + k, load(dlatents.data() + k) * load(w.inverse() + k));
          Tokens(dp, b, h + i).put(first, count, dlatents.data());
        }
    }
    // Z and Z'
    std::vector<OuterSums> future(number, OuterSums(latents, width)), turned(number, OuterSums(width, latents));
    std::vector<float> after(number * 2 * latents);
    for (int64_t chunk = chunks - 1; chunk >= 0; --chunk)
      for (int64_t i = 0; i < number; ++i) {
        const float* before = states.data() + (i * chunks + chunk - 1) * size;
        const int64_t first = chunk * CHUNK, count = heads.take(i, chunk, before, nullptr, true);
        w.look_right();
        Tokens(grad, b, h + i).backward().take(first, count, dout.data());
        future[i].run<true>(count, gamma, dout.data(), x, dvalues.data(), false, w.along(Along::ROWS), w.from_right());
        turned[i].run<true>(count, dout.data(), gamma, values, dlatents.data(), false, w.along(Along::COLUMNS),
                            w.from_right());
        Tokens(dp, b, h + i).backward().take(first, count, dalpha.data());
        for (int64_t k = 0; k < count * latents; k += LANES)
          store(dalpha.data() + k, -load(gamma + k) * load(dalpha.data() + k));
        w.sum_from_the_right(dalpha.data(), after.data() + i * 2 * latents);
        for (int64_t k = 0; k < count * latents; k += LANES)
          store(dlatents.data() + k, load(x + k) * (load(dlatents.data() + k) + load(dalpha.data() + k)));
        Tokens(dtheta, b, h + i).backward().put(first, count, dlatents.data());
        Tokens(dv, b, h + i).backward().put(first, count, dvalues.data());
      }
  });
  return {dp, dtheta, dv};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(longhaul, m) {
  m.def("running_softmax_forward(Tensor p, Tensor theta, Tensor v, Tensor? padding) -> Tensor", &forward);
  m.def("running_softmax_backward(Tensor grad, Tensor p, Tensor theta, Tensor v, Tensor? padding)"
        " -> (Tensor, Tensor, Tensor)",
        &backward);
}

}  // namespace longhaul
