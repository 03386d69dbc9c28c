// The part of a matrix that a thread asks for while it waits for the others.
#pragma once
#include "threads/pool.h"
#include "weights/matrix.h"

namespace outrider {

// What a thread starts the product with this matrix with.
Ahead ahead_of(const Worker& worker, const Matrix& m);

// As ahead_of, for a product whose gate and up tiles are read side by side.
Ahead ahead_of_pairs(const Worker& worker, const Matrix& m);

}  // namespace outrider
