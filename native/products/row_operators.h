// Operators of single rows, on the calling thread.
#pragma once
#include "paths/path.h"

namespace outrider {

// x / sqrt(mean(x^2) + eps) * weight for rows [n, cols].
inline void norm_rows(const Path& path, const float* x, const float* weight, float eps, int n, int cols,
                      float* out) {
  for (int r = 0; r < n; r++) {
    const size_t at = static_cast<size_t>(r) * cols;
    path.norm(x + at, weight, eps, cols, out + at);
  }
}

// Rows [n, 2 cols] of gates and values become silu(gate) * value [n, cols].
inline void swiglu_rows(const Path& path, const float* x, int n, int cols, float* out) {
  for (int r = 0; r < n; r++) {
    const float* gate = x + static_cast<size_t>(r) * 2 * cols;
    path.swiglu(gate, gate + cols, cols, out + static_cast<size_t>(r) * cols);
  }
}

// Heads [n, heads, head_dim] turned by the angles of their rows' positions; cos and sin
// [positions, head_dim / 2].
inline void rotate_rows(const Path& path, const float* x, const int64_t* positions, int n, int heads,
                        int head_dim, const float* cos, const float* sin, float* out) {
  for (int r = 0; r < n; r++) {
    const size_t angle = static_cast<size_t>(positions[r]) * (head_dim / 2);
    for (int h = 0; h < heads; h++) {
      const size_t at = (static_cast<size_t>(r) * heads + h) * head_dim;
      path.rotate(x + at, cos + angle, sin + angle, head_dim, out + at);
    }
  }
}

// Rows `ids` of a matrix, dequantised: out [n, cols].
inline void embed_rows(const Path& path, const Matrix& m, const int64_t* ids, int n, float* out) {
  for (int r = 0; r < n; r++)
    path.embed(m, static_cast<int>(ids[r]), out + static_cast<size_t>(r) * m.cols);
}

}  // namespace outrider
