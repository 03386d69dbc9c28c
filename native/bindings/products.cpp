// Operators of rows, products and the head.
#include "bindings/bindings.h"
#include "products/row_operators.h"

namespace outrider {
namespace {

void best(GuardedEngine& self, const Packed& head, Address x, int n, const std::vector<float>& temperatures,
          const std::vector<uint64_t>& seeds, const std::vector<uint32_t>& positions, Address out) {
  std::vector<Draw> draws;
  for (size_t r = 0; r < temperatures.size(); r++)
    draws.push_back(draw_of(temperatures[r], seeds[r], positions[r]));
  self.alone([&](Engine& e) {
    e.head.best(head.matrix, at(x), n, draws.empty() ? nullptr : draws.data(), at<int64_t>(out));
  });
}

}  // namespace

void bind_products(EngineClass& engine) {
  engine.def("norm", [](GuardedEngine& s, Address x, Address w, float eps, int n, int cols, Address out) {
    s.alone([&](Engine& e) { norm_rows(e.path, at(x), at(w), eps, n, cols, at(out)); });
  });
  engine.def("linear", [](GuardedEngine& s, const Packed& m, Address x, int n, Address out) {
    s.alone([&](Engine& e) { e.products.linear(m.matrix, at(x), n, at(out)); });
  });
  engine.def("swiglu", [](GuardedEngine& s, Address x, int n, int cols, Address out) {
    s.alone([&](Engine& e) { swiglu_rows(e.path, at(x), n, cols, at(out)); });
  });
  engine.def("rotate", [](GuardedEngine& s, Address x, Address positions, int n, int heads, int head_dim,
                          Address cos, Address sin, Address out) {
    s.alone([&](Engine& e) {
      rotate_rows(e.path, at(x), at<int64_t>(positions), n, heads, head_dim, at(cos), at(sin), at(out));
    });
  });
  engine.def("embed", [](GuardedEngine& s, const Packed& m, Address ids, int n, Address out) {
    s.alone([&](Engine& e) { embed_rows(e.path, m.matrix, at<int64_t>(ids), n, at(out)); });
  });
  engine.def("best", best);
  engine.def("gumbel", [](GuardedEngine& s, uint64_t seed, uint32_t stream, uint32_t position, Address ids,
                          int64_t count, Address out) {
    const Draw key = draw_of(1.0f, seed, position);
    s.alone([&](Engine& e) { e.path.gumbel(key, stream, at<int64_t>(ids), count, at(out)); });
  });
}

}  // namespace outrider
