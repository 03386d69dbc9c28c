#include "products/products.h"

namespace outrider {
namespace {

// Up to this many rows every thread prepares all of a product's input for itself: cheaper than a
// meeting of the threads.
constexpr int PRIVATE_ROWS = 4;

}  // namespace

void Products::reserve(int n, int cols) {
  const int own = n < PRIVATE_ROWS ? n : PRIVATE_ROWS;
  lanes_.each([&](Lane& lane) {
    lane.lines.reserve<int8_t>(line_count(own, cols) * LINE);
    lane.scales.reserve<BlockScale>(line_count(own, cols));
    lane.floats.reserve<float>(static_cast<size_t>(own) * cols);
    lane.row.reserve<float>(cols);
  });
  if (n <= PRIVATE_ROWS) return;
  lines_.reserve<int8_t>(line_count(n, cols) * LINE);
  scales_.reserve<BlockScale>(line_count(n, cols));
  floats_.reserve<float>(static_cast<size_t>(n) * cols);
}

// One row, normed if there is a weight, as integers and as floats if needed.
void Products::prepare_row(const Matrix& m, const Inputs& in, const Acts& acts, int row, float* scratch) {
  const float* x = in.data + row * in.ld;
  if (in.norm) {
    float* normed = m.any_float ? const_cast<float*>(acts.x) + row * acts.ld : scratch;
    path_.norm(x, in.norm, in.eps, m.cols, normed);
    x = normed;
  }
  if (m.any_quantised) path_.quantize(x, m.cols, acts, row);
}

Acts Products::prepare(Worker& worker, const Matrix& m, const Inputs& in) {
  Lane& lane = lanes_.of(worker);
  const bool own = in.count <= PRIVATE_ROWS;
  Acts acts{in.data, in.ld, nullptr, nullptr, m.cols / BLOCK};
  acts.q = (own ? lane.lines : lines_).data<int8_t>();
  acts.scale = (own ? lane.scales : scales_).data<BlockScale>();
  if (in.norm) {
    acts.x = (own ? lane.floats : floats_).data<float>();
    acts.ld = m.cols;
  }
  float* scratch = lane.row.data<float>();
  if (own) {
    for (int r = 0; r < in.count; r++) prepare_row(m, in, acts, r, scratch);
    return acts;
  }
  if (!in.norm && !m.any_quantised) return acts;
  int low, high;
  while (worker.take_run(in.count, low, high))
    for (int r = low; r < high; r++) prepare_row(m, in, acts, r, scratch);
  worker.meet();
  return acts;
}

void Products::multiply(Worker& worker, const Matrix& m, const Acts& acts, int n, const Outputs& out,
                        const Ahead& ahead) {
  int low, high, first, last;
  worker.share(m.tiles, first, last);
  while (worker.take_run(m.tiles, low, high))
    path_.product(m, low, high, acts, n, out, high == last ? ahead.data[0] : nullptr);
  worker.meet(ahead);
}

void Products::linear(const Matrix& m, const float* x, int n, float* out) {
  reserve(n, m.cols);
  pool_.run([&](Worker& worker) {
    const Acts acts = prepare(worker, m, {x, static_cast<size_t>(m.cols), n});
    multiply(worker, m, acts, n, {out, static_cast<size_t>(m.rows), false});
  });
}

}  // namespace outrider
