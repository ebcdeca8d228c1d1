// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "model/pass.hpp"

namespace trainer {

/// Causal attention of this rank's heads. qkv: [tokens x 3 x local width], each third head by head; output
/// and its gradient: [tokens x local width]; probabilities: [samples x local heads x context x context].
void attend(const Pass& pass, const Array& qkv, Array& probabilities, Array& output);
void attend_backward(const Pass& pass, const Array& qkv, const Array& probabilities, const Array& d_output,
                     Array& d_qkv);

}  // namespace trainer
