// Row-wise operators and products.
#include <cstring>

#include "engine.h"

namespace outrider {
namespace {

// Up to this many rows every thread prepares all of a product's input for itself: cheaper than a
// meeting of the threads.
constexpr int PRIVATE_ROWS = 4;

}  // namespace

Engine::Engine(const Path& path, int threads) : path_(path), pool_(threads) {
  for (int i = 0; i < pool_.size(); i++) lanes_.push_back(std::make_unique<Lane>());
}

void Engine::norm(const float* x, const float* weight, float eps, int n, int cols, float* out) {
  for (int r = 0; r < n; r++) {
    const size_t at = static_cast<size_t>(r) * cols;
    path_.norm(x + at, weight, eps, cols, out + at);
  }
}

void Engine::swiglu(const float* x, int n, int cols, float* out) {
  for (int r = 0; r < n; r++) {
    const float* gate = x + static_cast<size_t>(r) * 2 * cols;
    path_.swiglu(gate, gate + cols, cols, out + static_cast<size_t>(r) * cols);
  }
}

void Engine::rotate(const float* x, const int64_t* positions, int n, int heads, int head_dim,
                    const float* cos, const float* sin, float* out) {
  for (int r = 0; r < n; r++) {
    const size_t angle = static_cast<size_t>(positions[r]) * (head_dim / 2);
    for (int h = 0; h < heads; h++) {
      const size_t at = (static_cast<size_t>(r) * heads + h) * head_dim;
      path_.rotate(x + at, cos + angle, sin + angle, head_dim, out + at);
    }
  }
}

void Engine::embed(const Matrix& m, const int64_t* ids, int n, float* out) {
  for (int r = 0; r < n; r++)
    path_.embed(m, static_cast<int>(ids[r]), out + static_cast<size_t>(r) * m.cols);
}

void Engine::reserve_inputs(int n, int cols) {
  const int own = n < PRIVATE_ROWS ? n : PRIVATE_ROWS;
  for (std::unique_ptr<Lane>& lane : lanes_) {
    lane->lines.as<int8_t>(line_count(own, cols) * LINE);
    lane->scales.as<BlockScale>(line_count(own, cols));
    lane->floats.as<float>(static_cast<size_t>(own) * cols);
    lane->row.as<float>(cols);
  }
  if (n <= PRIVATE_ROWS) return;
  lines_.as<int8_t>(line_count(n, cols) * LINE);
  scales_.as<BlockScale>(line_count(n, cols));
  floats_.as<float>(static_cast<size_t>(n) * cols);
}

// One row of a product's input, normed if there is a weight, as integers and as floats if needed.
void Engine::prepare_row(const Matrix& m, const float* x, const float* weight, float eps,
                         const Acts& acts, int row, float* scratch) {
  const float* y = x;
  if (weight) {
    float* normed = m.any_float ? const_cast<float*>(acts.x) + row * acts.ld : scratch;
    path_.norm(x, weight, eps, m.cols, normed);
    y = normed;
  }
  if (m.any_quantised) path_.quantize(y, m.cols, acts, row);
}

// Input rows of a product, prepared once per thread or once for all.
Acts Engine::prepare(Worker& worker, const Matrix& m, const float* x, size_t ld, int n,
                     const float* weight, float eps) {
  Lane& lane = *lanes_[worker.id()];
  const bool own = n <= PRIVATE_ROWS;
  Acts acts{x, ld, nullptr, nullptr, m.cols / BLOCK};
  acts.q = (own ? lane.lines : lines_).as<int8_t>(0);
  acts.scale = (own ? lane.scales : scales_).as<BlockScale>(0);
  if (weight) {
    acts.x = own ? lane.floats.as<float>(0) : floats_.as<float>(0);
    acts.ld = m.cols;
  }
  float* scratch = lane.row.as<float>(0);
  if (own) {
    for (int r = 0; r < n; r++) prepare_row(m, x + r * ld, weight, eps, acts, r, scratch);
    return acts;
  }
  if (!weight && !m.any_quantised) return acts;
  int low, high;
  while (worker.take_run(n, low, high))
    for (int r = low; r < high; r++) prepare_row(m, x + r * ld, weight, eps, acts, r, scratch);
  worker.meet();
  return acts;
}

void Engine::product(Worker& worker, const Matrix& m, const Acts& acts, int n, const Outputs& out,
                     const Ahead& ahead) {
  int low, high, first, last;
  worker.share(m.tiles, first, last);
  while (worker.take_run(m.tiles, low, high))
    path_.product(m, low, high, acts, n, out, high == last ? ahead.data[0] : nullptr);
  worker.meet(ahead);
}

void Engine::linear(const Matrix& m, const float* x, int n, float* out) {
  reserve_inputs(n, m.cols);
  pool_.run([&](Worker& worker) {
    const Acts acts = prepare(worker, m, x, m.cols, n, nullptr, 0.0f);
    product(worker, m, acts, n, {out, static_cast<size_t>(m.rows), false});
  });
}

}  // namespace outrider
