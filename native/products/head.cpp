#include "products/head.h"

namespace outrider {

void Head::best(const Matrix& m, const float* x, int n, const Draw* draws, int64_t* out) {
  products_.reserve(n, m.cols);
  competition_.reserve(n);
  pool_.run([&](Worker& worker) {
    const Acts acts = products_.prepare(worker, m, {x, static_cast<size_t>(m.cols), n});
    competition_.run(worker, m, acts, n, draws, nullptr);
    worker.meet();
    if (worker.id() != 0) return;
    const int threads = worker.size();
    for (int r = 0; r < n; r++)
      out[r] = competition_.sound(threads, n, r) ? competition_.winner(threads, n, r) : -1;
  });
}

}  // namespace outrider
