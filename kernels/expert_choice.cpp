#include "kernels/expert_choice.h"

#include "kernels/bias.h"

namespace minfer {

void check_choice(const ExpertChoice& choice, const Weight& bias, int64_t experts, int32_t used) {
  if (choice.groups < 1 || choice.groups > kMaxExpertGroups || experts % choice.groups != 0) {
    fail("moe_route: {} experts in {} groups, expected 1 to {} groups of one size", experts, choice.groups,
         kMaxExpertGroups);
  }
  if (choice.groups_used < 1 || choice.groups_used > choice.groups) {
    fail("moe_route: {} groups used, expected 1 to {}", choice.groups_used, choice.groups);
  }
  const int64_t of_group = experts / choice.groups;
  if (choice.group_best < 1 || choice.group_best > 2 || (choice.groups > 1 && choice.group_best > of_group)) {
    fail("moe_route: groups by the best {} of {} experts, expected 1 or 2", choice.group_best, of_group);
  }
  const int64_t most = of_group * choice.groups_used;
  if (used < 1 || used > most) fail("moe_route: {} experts used, expected 1 to {}", used, most);
  check_bias("moe_route: bias of the choice", bias, 1, experts);
}

}  // namespace minfer
