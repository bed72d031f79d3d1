#include "models/grammar/state_table.h"

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "kernels/base/error.h"

namespace minfer {
namespace {

/// Calls within each other: deeper texts are not allowed.
constexpr uint32_t kMostDepth = 2000;
/// Where a text may stand at a time.
constexpr size_t kMostPlaces = 20'000;
/// The most work for one byte; no other request gets a turn within a byte.
constexpr size_t kMostWorkOfByte = 1'000'000;
/// The work for one place, without its edges.
constexpr size_t kWorkOfPlace = 16;
constexpr size_t kMostBytesOfToken = 32u << 20;
/// Steps of a state that are looked through one by one.
constexpr size_t kMostSteps = 8;
/// States made to find out whether all plain texts may follow. Texts of bounded length take some 200.
constexpr size_t kMostPlainStates = 320;

/// Bytes of the plain characters (see TokenTrie) that take more than one: a range for each.
struct Utf8Form {
  std::array<std::pair<uint8_t, uint8_t>, 4> bytes;
  size_t size;
};
constexpr std::array<Utf8Form, 8> kUtf8Forms = {{
    {{{{0xc2, 0xdf}, {0x80, 0xbf}}}, 2},
    {{{{0xe0, 0xe0}, {0xa0, 0xbf}, {0x80, 0xbf}}}, 3},
    {{{{0xe1, 0xec}, {0x80, 0xbf}, {0x80, 0xbf}}}, 3},
    {{{{0xed, 0xed}, {0x80, 0x9f}, {0x80, 0xbf}}}, 3},
    {{{{0xee, 0xef}, {0x80, 0xbf}, {0x80, 0xbf}}}, 3},
    {{{{0xf0, 0xf0}, {0x90, 0xbf}, {0x80, 0xbf}, {0x80, 0xbf}}}, 4},
    {{{{0xf1, 0xf3}, {0x80, 0xbf}, {0x80, 0xbf}, {0x80, 0xbf}}}, 4},
    {{{{0xf4, 0xf4}, {0x80, 0x8f}, {0x80, 0xbf}, {0x80, 0xbf}}}, 4},
}};

[[noreturn]] void fail_places() {
  fail<GrammarError>(
      "the grammar is too ambiguous: a text may stand in more than {} places, or at more than {} edges",
      kMostPlaces, kMostWorkOfByte);
}

void sort_and_unique(std::vector<uint32_t>& values) {
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

}  // namespace

StateTable::StateTable(const Grammar& grammar, const TokenTrie& tokens)
    : grammar_(grammar), tokens_(tokens), trees_{&tokens.others(), &tokens.plain()} {
  frames_.push_back({.return_state = 0, .outer = 0, .depth = 0});
  intern({}, false);  // kDead
  GrammarWork work;
  start_ = close({{grammar.start(), 0}}, work);
}

uint32_t StateTable::frame(uint32_t return_state, uint32_t outer) {
  const auto [known, is_new] =
      frame_index_.try_emplace(uint64_t{return_state} << 32 | outer, static_cast<uint32_t>(frames_.size()));
  if (is_new) {
    frames_.push_back({return_state, outer, frames_[outer].depth + 1});
    bytes_ += sizeof(Frame) + 4 * sizeof(uint64_t);
  }
  return known->second;
}

/// The state of these places and of all that calls and returns lead to.
uint32_t StateTable::close(std::vector<Place> todo, GrammarWork& work) {
  std::set<Place> seen;
  std::vector<Place> places;
  bool may_end = false;
  const size_t most_spent = work.spent() + kMostWorkOfByte;
  while (!todo.empty()) {
    const Place place = todo.back();
    todo.pop_back();
    work.spend(kWorkOfPlace);
    if (!seen.insert(place).second) continue;
    if (seen.size() > kMostPlaces || work.spent() > most_spent) fail_places();
    const Grammar::State& state = grammar_.state(place.state);
    if (state.num_edges > 0) places.push_back(place);
    if (state.accepting && place.frame == 0) may_end = true;
    if (state.accepting && place.frame != 0) {
      const Frame& called = frames_[place.frame];
      todo.push_back({called.return_state, called.outer});
    }
    for (const Grammar::Call& call : grammar_.calls(state)) {
      const Grammar::State& target = grammar_.state(call.target);
      // A call with nothing behind it returns to where this one would.
      const bool is_last = target.accepting && target.num_edges == 0 && target.num_calls == 0;
      if (!is_last && frames_[place.frame].depth >= kMostDepth) continue;
      todo.push_back({call.rule_start, is_last ? place.frame : frame(call.target, place.frame)});
    }
  }
  std::ranges::sort(places);
  return intern(places, may_end);
}

uint32_t StateTable::intern(std::span<const Place> places, bool may_end) {
  uint64_t hash = may_end ? 1 : 2;
  for (const Place& place : places) {
    hash = (hash ^ (uint64_t{place.state} << 32 | place.frame)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  const auto [begin, end] = state_index_.equal_range(hash);
  for (auto known = begin; known != end; ++known) {
    const State& state = states_[known->second];
    if (state.may_end == may_end && std::ranges::equal(state.places, places)) return known->second;
  }
  const auto number = static_cast<uint32_t>(states_.size());
  bytes_ += 2 * sizeof(State) + places.size() * sizeof(Place) + 4 * sizeof(uint64_t);
  states_.push_back({.places = {places.begin(), places.end(), &memory_},
                     .may_end = may_end,
                     .steps = std::pmr::vector<Step>(&memory_)});
  state_index_.emplace(hash, number);
  return number;
}

uint32_t StateTable::known_next(const State& state, uint8_t byte) const {
  if (state.next) return state.next[byte];
  const auto known = std::ranges::find_if(
      state.steps, [byte](const Step& step) { return step.low <= byte && byte <= step.high; });
  return known == state.steps.end() ? kUnknown : known->target;
}

void StateTable::keep_step(State& state, Step step) {
  if (!state.next && state.steps.size() < kMostSteps) {
    state.steps.push_back(step);
    bytes_ += 2 * sizeof(Step);
    return;
  }
  if (!state.next) {
    state.next = std::make_unique<uint32_t[]>(256);
    std::fill_n(state.next.get(), 256, kUnknown);
    bytes_ += 256 * sizeof(uint32_t);
    for (const Step& known : state.steps)
      keep_step(state, known);
    state.steps.clear();
  }
  std::fill(state.next.get() + step.low, state.next.get() + step.high + 1, step.target);
}

uint32_t StateTable::next(uint32_t state, uint8_t byte, GrammarWork& work) {
  work.spend(1);
  const uint32_t known = known_next(states_[state], byte);
  return known != kUnknown ? known : find_next(state, byte, work);
}

/// Also for the bytes around `byte` that lead over the same edges.
uint32_t StateTable::find_next(uint32_t index, uint8_t byte, GrammarWork& work) {
  work.pause_if_due();
  if (bytes_ > kMostBytesOfToken)
    fail<GrammarError>("the grammar is too ambiguous: one token takes more than {} MiB of states",
                       kMostBytesOfToken >> 20);
  uint8_t low = 0, high = UINT8_MAX;
  std::vector<Place> targets;
  const size_t most_spent = work.spent() + kMostWorkOfByte;
  for (const Place& place : states_[index].places) {
    size_t num_edges = 0;
    for (const Grammar::ByteEdge& edge : grammar_.edges(grammar_.state(place.state))) {
      ++num_edges;
      if (edge.high < byte) {
        low = std::max<uint8_t>(low, static_cast<uint8_t>(edge.high + 1));
      } else if (edge.low > byte) {
        high = std::min<uint8_t>(high, static_cast<uint8_t>(edge.low - 1));
        break;  // edges are sorted
      } else {
        low = std::max(low, edge.low);
        high = std::min(high, edge.high);
        targets.push_back({edge.target, place.frame});
      }
    }
    work.spend(num_edges);
    if (work.spent() > most_spent) fail_places();
  }
  const uint32_t target = targets.empty() ? kDead : close(std::move(targets), work);
  keep_step(states_[index], {low, high, target});
  return target;
}

std::optional<uint8_t> StateTable::only_byte(uint32_t index, GrammarWork& work) {
  State& state = states_[index];
  if (state.knows_only) return state.only;
  work.spend(state.places.size());
  state.knows_only = true;
  for (const Place& place : state.places) {
    for (const Grammar::ByteEdge& edge : grammar_.edges(grammar_.state(place.state))) {
      if (edge.low != edge.high || (state.only && *state.only != edge.low)) return state.only = std::nullopt;
      state.only = edge.low;
    }
  }
  return state.only;
}

/// Adds where any of the bytes leads from any of the states. False if one leads nowhere, or this takes too many states.
bool StateTable::add_steps(std::span<const uint32_t> states, uint8_t low, uint8_t high,
                           std::vector<uint32_t>& out, GrammarWork& work) {
  for (const uint32_t state : states) {
    for (int byte = low; byte <= high; ++byte) {
      const uint32_t target = next(state, static_cast<uint8_t>(byte), work);
      if (target == kDead || states_.size() > most_plain_states_) return false;
      if (out.empty() || out.back() != target) out.push_back(target);
    }
  }
  return true;
}

/// The same for any plain character.
bool StateTable::add_plain_steps(uint32_t state, std::vector<uint32_t>& out, GrammarWork& work) {
  const std::array<uint32_t, 1> start = {state};
  constexpr std::array<std::pair<uint8_t, uint8_t>, 3> kAscii = {
      {{0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, 0x7e}}};
  for (const auto& [low, high] : kAscii) {
    if (!add_steps(start, low, high, out, work)) return false;
  }
  for (const Utf8Form& form : kUtf8Forms) {
    std::vector<uint32_t> states = {state};
    for (size_t i = 0; i < form.size; ++i) {
      std::vector<uint32_t> targets;
      if (!add_steps(states, form.bytes[i].first, form.bytes[i].second, targets, work)) return false;
      sort_and_unique(targets);
      states = std::move(targets);
    }
    out.insert(out.end(), states.begin(), states.end());
  }
  sort_and_unique(out);
  return true;
}

/// True if all plain texts of `characters` characters may follow. Also false if the answer takes too many states: then each token is
/// judged by itself.
bool StateTable::takes_plain(uint32_t state, uint8_t characters, GrammarWork& work) {
  if (characters <= states_[state].proven_plain) return true;
  if (characters >= states_[state].refuted_plain) return false;
  std::vector<uint32_t> targets;
  bool takes = add_plain_steps(state, targets, work);
  if (!takes) characters = 1;
  for (size_t i = 0; takes && i < targets.size(); ++i)
    takes = takes_plain(targets[i], static_cast<uint8_t>(characters - 1), work);
  if (takes) {
    states_[state].proven_plain = characters;
  } else {
    states_[state].refuted_plain = std::min(states_[state].refuted_plain, characters);
  }
  return takes;
}

void StateTable::choose_trees(Walk& walk, uint32_t state, GrammarWork& work) {
  most_plain_states_ = walk.most_states;
  const bool is_plain = takes_plain(state, TokenTrie::kPlainCharacters, work);
  auto mask = std::make_shared<TokenMask>();
  if (is_plain) {
    mask->words.assign(tokens_.plain_mask().begin(), tokens_.plain_mask().end());
  } else {
    mask->words.resize(tokens_.plain_mask().size());
  }
  work.spend(mask->words.size());
  walk.trees = std::span(trees_).first(is_plain ? 1 : 2);
  walk.mask = std::move(mask);
}

/// Allows the tokens that `state` takes, of all trees of the walk.
void StateTable::go_on(Walk& walk, uint32_t state, GrammarWork& work) {
  for (; !walk.trees.empty(); walk.trees = walk.trees.subspan(1), walk.node = 1, walk.path.clear()) {
    const TokenTrie::Tree& tree = *walk.trees.front();
    const auto num_nodes = static_cast<uint32_t>(tree.nodes.size());
    if (walk.path.empty()) walk.path.push_back({num_nodes, state});
    while (walk.node < num_nodes) {
      work.pause_if_due();
      const TokenTrie::Node& node = tree.nodes[walk.node];
      while (walk.node >= walk.path.back().end)
        walk.path.pop_back();
      const uint32_t target = next(walk.path.back().state, node.byte, work);
      if (target == kDead) {
        walk.node = node.end;
        continue;
      }
      for (uint32_t k = 0; k < node.num_tokens; ++k) {
        const auto token = static_cast<uint32_t>(tree.tokens[node.first_token + k]);
        walk.mask->words[token / 32] |= 1u << token % 32;
      }
      ++walk.node;
      if (walk.node < node.end) walk.path.push_back({node.end, target});
    }
  }
}

std::shared_ptr<const TokenMask> StateTable::mask(uint32_t state, GrammarWork& work) {
  if (states_[state].mask) return states_[state].mask;
  if (!states_[state].walk)
    states_[state].walk = std::make_unique<Walk>(Walk{.most_states = states_.size() + kMostPlainStates});
  Walk& walk = *states_[state].walk;
  if (!walk.mask) choose_trees(walk, state, work);
  go_on(walk, state, work);
  const std::shared_ptr<TokenMask> mask = std::exchange(states_[state].walk, nullptr)->mask;
  for (const TokenId token : tokens_.end_tokens()) {
    const uint32_t bit = 1u << static_cast<uint32_t>(token) % 32;
    uint32_t& word = mask->words[static_cast<size_t>(token) / 32];
    word = may_end(state) ? word | bit : word & ~bit;
  }
  for (const uint32_t word : mask->words)
    mask->num_allowed += std::popcount(word);
  keep_mask(state, mask);
  return mask;
}

void StateTable::keep_mask(uint32_t state, std::shared_ptr<const TokenMask> mask) {
  if (mask) bytes_ += mask->words.size() * sizeof(uint32_t) + sizeof(TokenMask);
  states_[state].mask = std::move(mask);
}

std::vector<uint32_t> StateTable::import(const StateTable& other, std::span<const uint32_t> states) {
  std::vector<uint32_t> imported, frames(other.frames_.size(), 0), todo;
  const auto take_mask = [&](uint32_t state, uint32_t state_of_other) {
    if (!states_[state].mask) keep_mask(state, other.states_[state_of_other].mask);
  };
  take_mask(start_, other.start_);
  for (const uint32_t state : states) {
    std::vector<Place> places;
    for (const Place& place : other.states_[state].places) {
      for (uint32_t at = place.frame; at != 0 && frames[at] == 0; at = other.frames_[at].outer)
        todo.push_back(at);
      for (; !todo.empty(); todo.pop_back()) {
        const Frame& known = other.frames_[todo.back()];
        frames[todo.back()] = frame(known.return_state, frames[known.outer]);
      }
      places.push_back({place.state, frames[place.frame]});
    }
    std::ranges::sort(places);
    imported.push_back(intern(places, other.states_[state].may_end));
    take_mask(imported.back(), state);
  }
  return imported;
}

}  // namespace minfer
