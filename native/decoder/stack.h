// Weights of a stack of decoder layers.
#pragma once
#include <vector>

#include "weights/matrix.h"

namespace outrider {

// The bindings' caller keeps every matrix and table alive as long as the stack.
struct Layer {
  const float* attn_norm;  // [hidden]
  const Matrix* qkv;       // [(heads + 2 kv_heads) head_dim, hidden]: queries, keys, values
  const float* q_norm;     // [head_dim], or null
  const float* k_norm;     // [head_dim], or null
  const Matrix* out;       // [hidden, heads head_dim]
  const float* mlp_norm;   // [hidden]
  const Matrix* gate_up;   // [2 F, hidden]: gates, then values
  const Matrix* down;      // [hidden, F]
  int window;              // 0: sees all
  bool causal;             // within a block
};

struct Stack {
  std::vector<Layer> layers;
  int heads;
  int kv_heads;
  int head_dim;
  int hidden;
  float eps;
  const float* cos;  // [positions, head_dim / 2]
  const float* sin;
};

}  // namespace outrider
