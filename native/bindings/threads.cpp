// The policy of thread counts, for tests: the pool uses it from C++.
#include "bindings/bindings.h"
#include "threads/team.h"

namespace outrider {

// Times in nanoseconds.
void bind_threads(nb::module_& m) {
  nb::class_<Team>(m, "Team")
      .def(nb::init<int>())
      .def("size", [](Team& t, int64_t now) { return t.size(Team::Clock::time_point(Team::Duration(now))); })
      .def("note", [](Team& t, int64_t now, int64_t took, int64_t waited) {
        t.note(Team::Clock::time_point(Team::Duration(now)), Team::Duration(took), Team::Duration(waited));
      });
}

}  // namespace outrider
