// Python bindings. Tensors come as addresses; the Python side checks types, shapes and lifetimes.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <mutex>
#include <stdexcept>

#include "engine.h"
#include "threads/float_mode.h"

namespace nb = nanobind;

namespace outrider {
namespace {

using Address = uintptr_t;

template <class T = float>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

bool supports_avx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

bool supports_avx512vnni() {
#if defined(__x86_64__)
  return supports_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

// Code paths that this machine can run, best first.
std::vector<const Path*> available() {
  std::vector<const Path*> paths;
#if defined(__x86_64__)
  if (supports_avx512vnni()) paths.push_back(path_avx512vnni());
  if (supports_avx2()) paths.push_back(path_avx2());
#endif
  paths.push_back(path_portable());
  return paths;
}

const Path& path_named(const std::string& name) {
  for (const Path* path : available())
    if (name == path->name) return *path;
  throw std::invalid_argument("this machine cannot run code path " + name);
}

RowSet parse_rows(nb::handle rows) {
  RowSet set;
  for (nb::handle group : rows.attr("groups")) {
    Group g{};
    g.start = nb::cast<int>(group.attr("start"));
    g.count = nb::cast<int>(group.attr("count"));
    g.floor = nb::cast<int>(group.attr("floor"));
    g.first_row = set.count;
    for (nb::handle page : group.attr("pages")) g.pages.push_back(nb::cast<int>(page));
    set.count += g.count;
    set.groups.push_back(std::move(g));
  }
  return set;
}

KeyFormat key_format(const std::string& name) {
  if (name == "int8") return KeyFormat::INT8;
  if (name == "bfloat16") return KeyFormat::BF16;
  if (name == "float32") return KeyFormat::F32;
  throw std::invalid_argument("keys and values cannot be kept as " + name);
}

struct Pages {
  Store store{};
  std::unique_ptr<Memory> memory;

  Pages(int layers, int pages, int kv_heads, int head_dim, const std::string& format) {
    store.layers = layers;
    store.pages = pages;
    store.kv_heads = kv_heads;
    store.layout = head_layout(key_format(format), head_dim);
    memory = std::make_unique<Memory>(store.bytes());
    store.data = memory->data();
  }

  void copy(int source, int target) const {
    for (int i = 0; i < store.heads(); i++) memcpy(store.head(target, i), store.head(source, i), store.layout.bytes);
  }
  // A page as one piece of memory, head after head.
  void read(int page, uint8_t* out) const {
    const size_t bytes = store.layout.bytes;
    for (int i = 0; i < store.heads(); i++) memcpy(out + i * bytes, store.head(page, i), bytes);
  }
  void write(int page, const uint8_t* in) const {
    const size_t bytes = store.layout.bytes;
    for (int i = 0; i < store.heads(); i++) memcpy(store.head(page, i), in + i * bytes, bytes);
  }

  // Zero rows: every element its zero, every scale 0.
  void clear(int id, int upto) const {
    const HeadLayout& h = store.layout;
    const int size = 4 / h.per;  // bytes of an element
    for (int i = 0; i < store.heads(); i++) {
      uint8_t* head = store.head(id, i);
      for (int slot = 0; slot < upto; slot++) {
        for (int c = 0; c < h.lines; c++)
          memset(head + (slot / 16 * h.lines + c) * 64 + slot % 16 * 4, h.zero_key(), 4);
        for (int c = 0; c < h.width; c++)
          memset(head + h.values + (slot / h.per * h.width + c) * 4 + slot % h.per * size, 0, size);
      }
      if (!h.scaled()) continue;
      memset(head + h.key_scales, 0, upto * sizeof(float));
      memset(head + h.value_scales, 0, upto * sizeof(float));
    }
  }
};

using LayerArgs = std::tuple<Address, Packed*, Address, Address, Packed*, Address, Packed*, Packed*, int, bool>;

Layer layer_of(const LayerArgs& args) {
  const auto& [attn_norm, qkv, q_norm, k_norm, out, mlp_norm, gate_up, down, window, causal] = args;
  return {at(attn_norm), &qkv->matrix, at(q_norm), at(k_norm), &out->matrix, at(mlp_norm),
          &gate_up->matrix, &down->matrix, window, causal};
}

// An engine that one Python thread at a time may use, without the interpreter lock.
class Native {
 public:
  Native(const std::string& path, int threads) : engine_(path_named(path), threads) {}

  int threads() { return engine_.pool().size(); }

  template <class F>
  auto alone(F&& function) {
    nb::gil_scoped_release release;
    if (engine_.pool().forked())
      throw std::runtime_error(
          "this model was loaded before the process was forked, and its threads stayed behind: load it in the "
          "child, or start processes with the \"spawn\" method");
    std::lock_guard<std::mutex> lock(mutex_);
    const FloatMode mode;
    return function(engine_);
  }

 private:
  Engine engine_;
  std::mutex mutex_;
};

using RawArgs = std::tuple<Address, std::string, int, int>;

std::unique_ptr<Packed> pack_parts(Native& self, const std::vector<RawArgs>& parts, Address bias) {
  std::vector<RawPart> raw;
  for (const auto& [data, format, rows, cols] : parts) raw.push_back({at<uint8_t>(data), format, rows, cols});
  return self.alone([&](Engine& e) { return pack(e.pool(), e.arena(), raw, at(bias)); });
}

void best(Native& self, const Packed& head, Address x, int n, const std::vector<float>& temperatures,
          const std::vector<uint64_t>& seeds, const std::vector<uint32_t>& positions, Address out) {
  std::vector<Draw> draws;
  for (size_t r = 0; r < temperatures.size(); r++)
    draws.push_back({temperatures[r], static_cast<uint32_t>(seeds[r]), static_cast<uint32_t>(seeds[r] >> 32),
                     positions[r]});
  self.alone([&](Engine& e) {
    e.best(head.matrix, at(x), n, draws.empty() ? nullptr : draws.data(), at<int64_t>(out));
  });
}

using BlockArgs = std::tuple<int, int64_t, float, uint64_t, uint32_t>;

std::vector<Block> blocks_of(const std::vector<BlockArgs>& args) {
  std::vector<Block> blocks;
  int first = 0;
  for (const auto& [length, tip, temperature, seed, position] : args) {
    const Draw draw{temperature, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), position};
    blocks.push_back({first, length, tip, draw});
    first += length;
  }
  return blocks;
}

void walk(Native& self, const Packed& tokens, const Packed& out, Address ids, Address scores,
          const std::vector<BlockArgs>& args, Address chosen) {
  const std::vector<Block> blocks = blocks_of(args);
  const Chain chain{&tokens.matrix, &out.matrix, at<int32_t>(ids)};
  self.alone([&](Engine& e) { e.walk(chain, at(scores), blocks, at<int64_t>(chosen)); });
}

void bind_operators(nb::class_<Native>& native) {
  native.def("norm", [](Native& s, Address x, Address w, float eps, int n, int cols, Address out) {
    s.alone([&](Engine& e) { e.norm(at(x), at(w), eps, n, cols, at(out)); });
  });
  native.def("linear", [](Native& s, const Packed& m, Address x, int n, Address out) {
    s.alone([&](Engine& e) { e.linear(m.matrix, at(x), n, at(out)); });
  });
  native.def("swiglu", [](Native& s, Address x, int n, int cols, Address out) {
    s.alone([&](Engine& e) { e.swiglu(at(x), n, cols, at(out)); });
  });
  native.def("rotate", [](Native& s, Address x, Address positions, int n, int heads, int head_dim,
                          Address cos, Address sin, Address out) {
    s.alone([&](Engine& e) {
      e.rotate(at(x), at<int64_t>(positions), n, heads, head_dim, at(cos), at(sin), at(out));
    });
  });
  native.def("embed", [](Native& s, const Packed& m, Address ids, int n, Address out) {
    s.alone([&](Engine& e) { e.embed(m.matrix, at<int64_t>(ids), n, at(out)); });
  });
  native.def("best", best);
  native.def("walk", walk);
  native.def("gumbel", [](Native& s, uint64_t seed, uint32_t stream, uint32_t position, Address ids,
                          int64_t count, Address out) {
    const Draw key{1.0f, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), position};
    s.alone([&](Engine& e) { e.path().gumbel(key, stream, at<int64_t>(ids), count, at(out)); });
  });
}

void bind_attention(nb::class_<Native>& native) {
  native.def("write", [](Native& s, const Pages& p, int layer, Address k, Address v, nb::handle rows) {
    const RowSet set = parse_rows(rows);
    s.alone([&](Engine& e) { e.write(p.store, layer, at(k), at(v), set); });
  });
  native.def("attend", [](Native& s, const Pages& p, int layer, Address q, nb::handle rows, int heads,
                          int window, Address out) {
    const RowSet set = parse_rows(rows);
    s.alone([&](Engine& e) { e.attend(p.store, layer, at(q), set, heads, window, at(out)); });
  });
  native.def("attend_block", [](Native& s, const Pages& p, int layer, Address q, Address k, Address v,
                                nb::handle rows, int heads, int window, bool causal, Address out) {
    const RowSet set = parse_rows(rows);
    s.alone([&](Engine& e) {
      e.attend_block(p.store, layer, at(q), at(k), at(v), set, heads, window, causal, at(out));
    });
  });
  native.def("draft", [](Native& s, const Sketch& sketch, nb::handle rows, const Pages& p,
                         const std::vector<BlockArgs>& args, Address chosen, Address confidences) {
    const RowSet set = parse_rows(rows);
    const std::vector<Block> blocks = blocks_of(args);
    s.alone([&](Engine& e) { e.draft(sketch, set, p.store, blocks, at<int64_t>(chosen), at(confidences)); });
  });
  native.def("ingest", [](Native& s, const Packed& fc, Address norm, const Packed& keys_values,
                          const Stack& stack, Address taps, nb::handle rows, const Pages& p) {
    const RowSet set = parse_rows(rows);
    s.alone([&](Engine& e) {
      e.ingest(fc.matrix, at(norm), keys_values.matrix, stack, at(taps), set, p.store);
    });
  });
  native.def("write_context", [](Native& s, const Stack& stack, Address flat, nb::handle rows, const Pages& p) {
    const RowSet set = parse_rows(rows);
    s.alone([&](Engine& e) { e.write_context(stack, at(flat), set, p.store); });
  });
  native.def("run", [](Native& s, const Stack& stack, Address x, nb::handle rows, const Pages& p,
                       bool block, const std::vector<int>& taps, Address tapped) {
    const RowSet set = parse_rows(rows);
    s.alone([&](Engine& e) { e.run(stack, at(x), set, p.store, block, taps, at(tapped)); });
  });
}

}  // namespace
}  // namespace outrider

NB_MODULE(_native, m) {
  using namespace outrider;
  // Objects that live until the interpreter ends are no leak.
  nb::set_leak_warnings(false);
  nb::class_<Packed>(m, "Matrix")
      .def_prop_ro("rows", [](const Packed& p) { return p.matrix.rows; })
      .def_prop_ro("cols", [](const Packed& p) { return p.matrix.cols; })
      .def_prop_ro("nbytes", [](const Packed& p) { return p.bytes + p.bias.size() * sizeof(float); });
  nb::class_<Pages>(m, "Pages")
      .def(nb::init<int, int, int, int, const std::string&>())
      .def_prop_ro("page_nbytes", [](const Pages& p) { return p.store.page_bytes(); })
      .def("copy", &Pages::copy)
      .def("read", [](const Pages& p, int page, Address out) { p.read(page, at<uint8_t>(out)); })
      .def("write", [](const Pages& p, int page, Address in) { p.write(page, at<uint8_t>(in)); })
      .def("clear", &Pages::clear);
  nb::class_<Stack>(m, "Stack").def(
      "__init__", [](Stack* self, const std::vector<LayerArgs>& layers, int heads, int kv_heads,
                     int head_dim, int hidden, float eps, Address cos, Address sin) {
        new (self) Stack{{}, heads, kv_heads, head_dim, hidden, eps, at(cos), at(sin)};
        for (const LayerArgs& layer : layers) self->layers.push_back(layer_of(layer));
      });
  nb::class_<Sketch>(m, "Sketch")
      .def("__init__", [](Sketch* self, const Stack& stack, const Packed& embedding, float scale, Address masks,
                          int rows, int first, Address norm, const Packed& head, const Packed& tokens,
                          const Packed& out, Address ids, Address confidence) {
        new (self) Sketch{&stack, &embedding.matrix, scale, at(masks), rows, first, at(norm), &head.matrix,
                          {&tokens.matrix, &out.matrix, at<int32_t>(ids)}, at(confidence)};
      });
  // Times in nanoseconds; the pool uses it from C++, tests from here.
  nb::class_<Team>(m, "Team")
      .def(nb::init<int>())
      .def("size", [](Team& t, int64_t now) { return t.size(Team::Clock::time_point(Team::Duration(now))); })
      .def("note", [](Team& t, int64_t now, int64_t took, int64_t waited) {
        t.note(Team::Clock::time_point(Team::Duration(now)), Team::Duration(took), Team::Duration(waited));
      });
  nb::class_<Native> native(m, "Engine");
  native.def(nb::init<const std::string&, int>()).def("pack", pack_parts);
  native.def_prop_ro("threads", &Native::threads);
  bind_operators(native);
  bind_attention(native);
  m.def("paths", [] {
    std::vector<std::string> names;
    for (const Path* path : available()) names.push_back(path->name);
    return names;
  });
}
