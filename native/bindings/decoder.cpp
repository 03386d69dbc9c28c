// Stacks of decoder layers.
#include "bindings/bindings.h"
#include "cache/page_store.h"

namespace outrider {
namespace {

using LayerArgs = std::tuple<Address, Packed*, Address, Address, Packed*, Address, Packed*, Packed*, int, bool>;

Layer layer_of(const LayerArgs& args) {
  const auto& [attn_norm, qkv, q_norm, k_norm, out, mlp_norm, gate_up, down, window, causal] = args;
  return {at(attn_norm), &qkv->matrix, at(q_norm), at(k_norm), &out->matrix, at(mlp_norm),
          &gate_up->matrix, &down->matrix, window, causal};
}

}  // namespace

void bind_decoder(nb::module_& m, EngineClass& engine) {
  nb::class_<Stack>(m, "Stack").def(
      "__init__", [](Stack* self, const std::vector<LayerArgs>& layers, int heads, int kv_heads,
                     int head_dim, int hidden, float eps, Address cos, Address sin) {
        new (self) Stack{{}, heads, kv_heads, head_dim, hidden, eps, at(cos), at(sin)};
        for (const LayerArgs& layer : layers) self->layers.push_back(layer_of(layer));
      });
  engine.def("run", [](GuardedEngine& s, const Stack& stack, Address x, nb::handle rows, const PageStore& p,
                       bool block, const std::vector<int>& taps, Address tapped) {
    const RowSet set = parse_rows(rows);
    s.alone([&](Engine& e) {
      if (block) {
        e.decoder.run_block(stack, at(x), set, p.store());
      } else {
        e.decoder.run(stack, at(x), set, p.store(), taps, at(tapped));
      }
    });
  });
}

}  // namespace outrider
