#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "models/chat/jinja/syntax/ast.h"
#include "models/chat/jinja/syntax/lexer.h"

namespace minfer::jinja {

/// The largest depth of an expression's tree. Chains such as a + b + c deepen the tree like brackets.
inline constexpr int kMaxTreeDepth = 400;

/// The number of levels below a node.
inline int depth_of(const Expr* expr) {
  return expr == nullptr ? 0 : expr->depth;
}

inline int depth_of(const std::vector<ExprPtr>& list) {
  int depth = 0;
  for (const ExprPtr& expr : list)
    depth = std::max(depth, expr->depth);
  return depth;
}

inline int depth_of(const CallArguments& arguments) {
  int depth = std::max({depth_of(arguments.positional), depth_of(arguments.more_positional.get()),
                        depth_of(arguments.more_named.get())});
  for (const auto& [name, value] : arguments.named)
    depth = std::max(depth, value->depth);
  return depth;
}

/// A node over children of at most `child_depth`. Throws if the tree becomes too deep.
inline ExprPtr make_node(int line, int child_depth, auto node) {
  if (child_depth >= kMaxTreeDepth) fail_at(line, "an expression of more than {} levels", kMaxTreeDepth);
  return std::make_unique<const Expr>(Expr{line, child_depth + 1, std::move(node)});
}

}  // namespace minfer::jinja
