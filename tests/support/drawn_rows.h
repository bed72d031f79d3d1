#pragma once

#include <vector>

#include "kernels/sampling.h"
#include "tests/support/random_data.h"

/// Rows whose draws every backend's test compares with the exact distribution: visit(logits, row, what).
namespace minfer::test {

template <class Visit>
void visit_drawn_rows(const Visit& visit) {
  const std::vector<float> logits = normal_values(200, 4, 2.0f);
  SamplingRow row;
  row.seed = 42;
  visit(logits, row, "plain");
  row.temperature = 0.6f;
  visit(logits, row, "temperature 0.6");
  row.temperature = 1.5f;
  row.top_k = 20;
  visit(logits, row, "top_k 20");
  row.top_p = 0.8f;
  visit(logits, row, "top_k 20, top_p 0.8");
  row.min_p = 0.1f;
  visit(logits, row, "top_k 20, top_p 0.8, min_p 0.1");
}

/// Without top_k, most rows take more than one try.
template <class Visit>
void visit_tried_rows(const Visit& visit) {
  const std::vector<float> logits = normal_values(200, 5, 0.5f);
  SamplingRow row;
  row.seed = 43;
  for (const float top_p : {0.9f, 0.5f, 0.1f, 0.02f}) {
    row.top_p = top_p;
    visit(logits, row, "top_p");
  }
  row.min_p = 0.4f;
  row.top_p = 1.0f;
  visit(logits, row, "min_p 0.4");
  row.top_p = 0.3f;
  visit(logits, row, "top_p 0.3, min_p 0.4");
}

}  // namespace minfer::test
