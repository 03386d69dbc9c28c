// Packed matrices, and packing.
#include "bindings/bindings.h"

namespace outrider {
namespace {

using RawArgs = std::tuple<Address, std::string, int, int>;

std::unique_ptr<Packed> pack_parts(GuardedEngine& self, const std::vector<RawArgs>& parts, Address bias) {
  std::vector<RawPart> raw;
  for (const auto& [data, format, rows, cols] : parts) raw.push_back({at<uint8_t>(data), format, rows, cols});
  return self.alone([&](Engine& e) { return pack(e.pool, e.arena, raw, at(bias)); });
}

}  // namespace

void bind_weights(nb::module_& m, EngineClass& engine) {
  nb::class_<Packed>(m, "Matrix")
      .def_prop_ro("rows", [](const Packed& p) { return p.matrix.rows; })
      .def_prop_ro("cols", [](const Packed& p) { return p.matrix.cols; })
      .def_prop_ro("nbytes", [](const Packed& p) { return p.bytes + p.bias.size() * sizeof(float); });
  engine.def("pack", pack_parts);
}

}  // namespace outrider
