// The engine as Python holds it.
#pragma once
#include <nanobind/nanobind.h>

#include <mutex>
#include <stdexcept>
#include <string>

#include "engine.h"
#include "paths/available.h"
#include "threads/float_mode.h"

namespace outrider {

// An engine that one Python thread at a time may use, without the interpreter lock and in the
// floating-point mode in which results are defined.
class GuardedEngine {
 public:
  GuardedEngine(const std::string& path, int threads) : engine_(path_named(path), threads) {}

  int threads() const { return engine_.pool.size(); }

  template <class F>
  auto alone(F&& function) {
    nanobind::gil_scoped_release release;
    if (engine_.pool.forked())
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

}  // namespace outrider
