// State that every thread of a pool has for itself.
#pragma once
#include <memory>
#include <vector>

#include "threads/pool.h"

namespace outrider {

// One T for each thread, in memory of its own. Inside a run a thread touches its own alone; between
// runs the caller may touch all of them.
template <class T>
class PerThread {
 public:
  explicit PerThread(const Pool& pool) {
    for (int i = 0; i < pool.size(); i++) items_.push_back(std::make_unique<T>());
  }

  T& of(const Worker& worker) { return *items_[worker.id()]; }

  template <class F>
  void each(F&& function) {
    for (std::unique_ptr<T>& item : items_) function(*item);
  }

 private:
  std::vector<std::unique_ptr<T>> items_;
};

}  // namespace outrider
