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
  EngineClass engine(m, "Engine");
  engine.def(nb::init<const std::string&, int>());
  engine.def_prop_ro("threads", &GuardedEngine::threads);
  bind_weights(m, engine);
  bind_products(engine);
  bind_attention(m, engine);
  bind_decoder(m, engine);
  bind_drafting(m, engine);
}
