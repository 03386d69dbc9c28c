// What all bindings share. Tensors come as addresses; the Python side checks types, shapes and
// lifetimes.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstdint>

#include "bindings/guarded_engine.h"
#include "cache/rows.h"
#include "paths/path.h"

namespace outrider {

namespace nb = nanobind;

using Address = uintptr_t;

template <class T = float>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

// A draw by its key; temperature 0 takes the best.
inline Draw draw_of(float temperature, uint64_t seed, uint32_t position) {
  return {temperature, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), position};
}

// The rows of a call, from an outrider.kernels.rows.Rows.
RowSet parse_rows(nb::handle rows);

using EngineClass = nb::class_<GuardedEngine>;

void bind_threads(nb::module_& m);
void bind_weights(nb::module_& m, EngineClass& engine);
void bind_products(EngineClass& engine);
void bind_attention(nb::module_& m, EngineClass& engine);
void bind_decoder(nb::module_& m, EngineClass& engine);
void bind_drafting(nb::module_& m, EngineClass& engine);

}  // namespace outrider
