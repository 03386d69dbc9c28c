#include "bindings/bindings.h"

namespace outrider {

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

}  // namespace outrider
