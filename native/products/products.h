// Matrix products of rows, whose inputs are normed and quantised on the way.
#pragma once
#include "memory/buffer.h"
#include "paths/path.h"
#include "threads/per_thread.h"
#include "threads/pool.h"

namespace outrider {

// Rows that a product reads: row r at data + r * ld, normed first if there is a weight.
struct Inputs {
  const float* data;
  size_t ld;
  int count;
  const float* norm = nullptr;  // [cols]
  float eps = 0.0f;
};

// A row's outputs follow from its inputs and the matrix alone: how many rows share the call, and which
// thread computes which tile, changes no bit.
class Products {
 public:
  Products(const Path& path, Pool& pool) : path_(path), pool_(pool), lanes_(pool) {}

  // x [n, cols] times a matrix [rows, cols], plus its bias: out [n, rows].
  void linear(const Matrix& m, const float* x, int n, float* out);

  // The parts of a product inside a run of the pool, for operators of several phases.
  //
  // Before the run: room for up to n rows of up to `cols` inputs.
  void reserve(int n, int cols);
  // Input rows as the path reads them, prepared once per thread or once for all. They hold until the
  // next call of prepare.
  Acts prepare(Worker& worker, const Matrix& m, const Inputs& in);
  // One phase: all outputs of n prepared rows. `ahead`: what each thread reads in the next phase.
  void multiply(Worker& worker, const Matrix& m, const Acts& acts, int n, const Outputs& out,
                const Ahead& ahead = {});

 private:
  struct Lane {
    Buffer lines, scales, floats, row;
  };

  void prepare_row(const Matrix& m, const Inputs& in, const Acts& acts, int row, float* scratch);

  const Path& path_;
  Pool& pool_;
  PerThread<Lane> lanes_;
  Buffer lines_, scales_, floats_;
};

}  // namespace outrider
