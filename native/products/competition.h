// A matrix's outputs, of which only the best is wanted.
#pragma once
#include "memory/buffer.h"
#include "paths/path.h"
#include "threads/pool.h"

namespace outrider {

// Every thread keeps the best of the tiles that it computes; after a meeting any of them may ask who
// won. NaN beats nothing, and of equal outputs the one with the lowest id wins, so the winner does not
// depend on who computed what.
class Competition {
 public:
  Competition(const Path& path, const Pool& pool) : path_(path), threads_(pool.size()) {}

  // Before a run: room for n rows.
  void reserve(int n) { bests_.reserve<Best>(static_cast<size_t>(threads_) * n); }

  // One phase, without its meeting: let all outputs of `m` compete for n rows. `draws` and `shift` may
  // be null.
  void run(Worker& worker, const Matrix& m, const Acts& acts, int n, const Draw* draws, const Shift* shift);

  // The best output of one of n rows over the run's threads; 0 if no output is a number.
  int winner(int threads, int n, int row) const;
  // Whether all outputs of one of n rows were finite.
  bool sound(int threads, int n, int row) const;

 private:
  const Path& path_;
  int threads_;
  Buffer bests_;  // [threads][n]
};

}  // namespace outrider
