#include "products/competition.h"

#include <limits>

namespace outrider {

void Competition::run(Worker& worker, const Matrix& m, const Acts& acts, int n, const Draw* draws,
                      const Shift* shift) {
  Best* mine = bests_.data<Best>() + static_cast<size_t>(worker.id()) * n;
  for (int r = 0; r < n; r++) {
    for (int l = 0; l < TILE; l++) {
      mine[r].value[l] = -std::numeric_limits<float>::infinity();
      mine[r].id[l] = std::numeric_limits<int32_t>::max();
      mine[r].poison[l] = 0.0f;
    }
  }
  int low, high;
  while (worker.take_run(m.tiles, low, high))
    path_.best(m, low, high, acts, n, draws, shift, mine);
}

int Competition::winner(int threads, int n, int row) const {
  const Best* bests = bests_.data<Best>();
  float value = -std::numeric_limits<float>::infinity();
  int32_t id = std::numeric_limits<int32_t>::max();
  for (int t = 0; t < threads; t++) {
    const Best& b = bests[static_cast<size_t>(t) * n + row];
    for (int l = 0; l < TILE; l++) {
      if (b.value[l] > value || (b.value[l] == value && b.id[l] < id)) {
        value = b.value[l];
        id = b.id[l];
      }
    }
  }
  return value == -std::numeric_limits<float>::infinity() ? 0 : id;
}

bool Competition::sound(int threads, int n, int row) const {
  const Best* bests = bests_.data<Best>();
  for (int t = 0; t < threads; t++)
    for (float poison : bests[static_cast<size_t>(t) * n + row].poison)
      if (!(poison == 0.0f)) return false;
  return true;
}

}  // namespace outrider
