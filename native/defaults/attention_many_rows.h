// The integer products of attention for many query rows, where a variant has a form of its own: a header of this name
// in its folder. This is the default: the vector form serves any number of rows.
#pragma once
#include "kernels/attention_vector.h"

namespace sf::attention {

using ManyRowDots = VectorDots;
inline constexpr int64_t kManyRows = 1;  // rows from which ManyRowDots is used

}  // namespace sf::attention
