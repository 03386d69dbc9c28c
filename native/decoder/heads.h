// What happens to queries and keys between their product and attention.
#pragma once
#include "decoder/stack.h"
#include "paths/path.h"

namespace outrider {

// Norm, if there is a weight, and rotate one head [head_dim] of the token at `position`, in place.
inline void place_head(const Path& path, const Stack& stack, const float* weight, int position, float* head) {
  const int d = stack.head_dim;
  const size_t angle = static_cast<size_t>(position) * (d / 2);
  if (weight) path.norm(head, weight, stack.eps, d, head);
  path.rotate(head, stack.cos + angle, stack.sin + angle, d, head);
}

}  // namespace outrider
