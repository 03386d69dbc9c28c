// The Python module.
#include "bindings/bindings.h"

NB_MODULE(_native, m) {
  using namespace outrider;
  // Objects that live until the interpreter ends are no leak.
  nb::set_leak_warnings(false);
  m.def("paths", [] {
    std::vector<std::string> names;
    for (const Path* path : available_paths()) names.push_back(path->name);
    return names;
  });
  bind_threads(m);
  NativeClass native(m, "Engine");
  native.def(nb::init<const std::string&, int>());
  native.def_prop_ro("threads", &Native::threads);
  bind_weights(m, native);
  bind_products(native);
  bind_attention(m, native);
  bind_decoder(m, native);
  bind_drafting(m, native);
}
