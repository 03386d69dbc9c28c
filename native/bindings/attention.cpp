// Pages of cached keys and values, and attention over them.
#include <stdexcept>

#include "bindings/bindings.h"
#include "cache/page_store.h"

namespace outrider {
namespace {

KeyFormat key_format(const std::string& name) {
  if (name == "int8") return KeyFormat::INT8;
  if (name == "bfloat16") return KeyFormat::BF16;
  if (name == "float32") return KeyFormat::F32;
  throw std::invalid_argument("keys and values cannot be kept as " + name);
}

void bind_pages(nb::module_& m) {
  nb::class_<PageStore>(m, "Pages")
      .def("__init__", [](PageStore* self, int layers, int pages, int kv_heads, int head_dim,
                          const std::string& format) {
        new (self) PageStore(layers, pages, kv_heads, head_dim, key_format(format));
      })
      .def_prop_ro("page_nbytes", [](const PageStore& p) { return p.store().page_bytes(); })
      .def("copy", &PageStore::copy)
      .def("read", [](const PageStore& p, int page, Address out) { p.read(page, at<uint8_t>(out)); })
      .def("write", [](const PageStore& p, int page, Address in) { p.write(page, at<uint8_t>(in)); })
      .def("clear", &PageStore::clear);
}

}  // namespace

void bind_attention(nb::module_& m, EngineClass& engine) {
  bind_pages(m);
  engine.def("write", [](GuardedEngine& s, const PageStore& p, int layer, Address k, Address v, nb::handle rows) {
    const RowSet set = parse_rows(rows);
    s.alone([&](Engine& e) { e.attention.write(p.store(), layer, at(k), at(v), set); });
  });
  engine.def("attend", [](GuardedEngine& s, const PageStore& p, int layer, Address q, nb::handle rows, int heads,
                          int window, Address out) {
    const RowSet set = parse_rows(rows);
    s.alone([&](Engine& e) { e.attention.attend(p.store(), layer, at(q), set, heads, window, at(out)); });
  });
  engine.def("attend_block", [](GuardedEngine& s, const PageStore& p, int layer, Address q, Address k, Address v,
                                nb::handle rows, int heads, int window, bool causal, Address out) {
    const RowSet set = parse_rows(rows);
    s.alone([&](Engine& e) {
      e.attention.attend_block(p.store(), layer, at(q), at(k), at(v), set, heads, window, causal, at(out));
    });
  });
}

}  // namespace outrider
