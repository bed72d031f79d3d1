#pragma once

#include <array>
#include <concepts>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>

#include "kernels/base/clock.h"
#include "profiling/json/lines.h"

namespace minfer {

// A function `members(json, value)` names the members of a line once; both MemberWriter and MemberReader run it. For the writer, `value` is
// const. The members are named in the order in which they are written; reading in that order takes constant time each.

// The getters that read members. Their ranges are far beyond measured values, and leave room: no sum, product or conversion that readers make
// of some values overflows or becomes infinite. Sums over lines are doubles or counts.

inline constexpr auto kNumber = &JsonField::number;
inline constexpr auto kBoolean = &JsonField::boolean;
inline constexpr auto kText = &JsonField::text;
/// ns in memory, us in the line.
inline constexpr auto kDuration = [](const JsonField& field) {
  return static_cast<int64_t>(field.number() * 1e3 + 0.5);
};
template <auto least, decltype(least) most>
constexpr auto kInteger = [](const JsonField& field) { return field.integer(least, most); };
template <int32_t least>
constexpr auto kSmallFrom = kInteger<least, 1 << 28>;
template <int64_t least>
constexpr auto kCountFrom = kInteger<least, 1'000'000'000'000>;
/// A time on some clock, ns.
template <int64_t least>
constexpr auto kTimeFrom = kInteger<least, 4'000'000'000'000'000'000>;
inline constexpr auto kSmall = kSmallFrom<0>;
inline constexpr auto kCount = kCountFrom<0>;
inline constexpr auto kTime = kTimeFrom<0>;
inline constexpr auto kBytes = kInteger<int64_t{0}, 100'000'000'000'000>;
inline constexpr auto kWork = kInteger<int64_t{0}, 1'000'000'000'000'000'000>;  ///< bytes or operations
template <class... Enum>
constexpr auto one_name_of(Enum... values) {
  return [values = std::array{values...}](const JsonField& field) { return one_of(field, values); };
}
/// The name of a value of an enum, from its first one to `last`.
template <auto last>
constexpr auto kNameTo = [](const JsonField& field) {
  std::array<decltype(last), static_cast<size_t>(last) + 1> values;
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<decltype(last)>(i);
  return one_of(field, values);
};
inline constexpr auto kStepPhase = kNameTo<StepPhase::mixed>;

/// The getter of a member of type T, unless another is named.
template <class T>
struct Usual {
  auto operator()(const JsonField& field) const {
    if constexpr (std::same_as<T, std::string>) return field.text();
    if constexpr (std::same_as<T, bool>) return field.boolean();
    if constexpr (std::same_as<T, double>) return field.number();
    if constexpr (std::same_as<T, int32_t>) return kSmall(field);
    if constexpr (std::same_as<T, int64_t> || std::same_as<T, uint64_t>) return kCount(field);
  }
};

/// Writes members of an open object, or reads the members of a field. Reading replaces the old values, in the memory that they
/// have, and throws FileError, naming the field.
template <bool reads>
class Members {
 public:
  static constexpr bool kReads = reads;
  using Json = std::conditional_t<reads, const JsonField, JsonText>;
  explicit Members(Json& json) : json_(json) {}

  JsonText& text() const requires(!reads) { return json_; }
  const JsonField& field() const requires reads { return json_; }

  /// `decimals`: decimals of a written number; the default is three.
  template <class T, class Read = Usual<T>, std::same_as<int>... Decimals>
  Members& member(std::string_view name, T& value, Read read = {}, Decimals... decimals) {
    if constexpr (reads) {
      set(value, json_[name], read);
    } else {
      json_.field(name, shown<Read>(value), decimals...);
    }
    return *this;
  }
  /// True if an optional member is there; when writing, this is `is_there`.
  bool has(std::string_view name, bool is_there) const {
    if constexpr (reads) return JsonField(json_).find(name).has_value();
    return is_there;
  }
  /// A member that is left out if it equals `absent`.
  template <class T, class Read = Usual<T>>
  Members& optional(std::string_view name, T& value, Read read = {},
                    const std::type_identity_t<std::remove_const_t<T>>& absent = {}) {
    if constexpr (reads) {
      const auto found = json_.find(name);
      found ? set(value, *found, read) : void(value = absent);
    } else if (value != absent) {
      member(name, value, read);
    }
    return *this;
  }
  /// A member that is only written; the reader ignores it.
  template <class... Content>
  Members& told(std::string_view name, const Content&... content) {
    if constexpr (!reads) json_.field(name, content...);
    return *this;
  }
  /// An object; `visit` names its members.
  template <class Visit>
  Members& object(std::string_view name, const Visit& visit) {
    if constexpr (reads) {
      visit_field(json_[name], visit);
    } else {
      json_.key(name).open('{');
      visit(*this);
      json_.close('}');
    }
    return *this;
  }
  /// A list of objects that members() knows. An empty list may be left out.
  template <class List>
  Members& list(std::string_view name, List& values, bool may_be_absent = false) {
    if constexpr (reads) {
      const auto list = may_be_absent ? json_.find(name) : json_[name];
      values.resize(list ? list->size() : 0);
      for (size_t i = 0; i < values.size(); ++i)
        visit_field((*list)[i], [&](auto& inner) { members(inner, values[i]); });
    } else if (!may_be_absent || !values.empty()) {
      json_.key(name).open('[');
      for (const auto& value : values) {
        json_.open('{');
        members(*this, value);
        json_.close('}');
      }
      json_.close(']');
    }
    return *this;
  }
  template <class List, class Read = Usual<typename List::value_type>>
  Members& plain_list(std::string_view name, List& values, Read read = {}) {
    if constexpr (reads) {
      const JsonField list = json_[name];
      values.resize(list.size());
      for (size_t i = 0; i < values.size(); ++i)
        set(values[i], list[i], read);
    } else {
      json_.key(name).open('[');
      for (const auto& value : values)
        json_.value(shown<Read>(value));
      json_.close(']');
    }
    return *this;
  }

 private:
  template <class Visit>
  static void visit_field(const JsonField& field, const Visit& visit) {
    Members inner(field);
    visit(inner);
  }
  template <class T, class Read>
  static void set(T& value, const JsonField& field, Read read) {
    if constexpr (std::same_as<T, std::string>) {
      // Texts repeat from line to line, so an unchanged text is not copied again.
      if (value == field.raw_text()) return;
    }
    value = static_cast<T>(std::invoke(read, field));
  }
  template <class Read, class T>
  static auto shown(const T& value) {
    if constexpr (requires { name(value); }) {
      return name(value);
    } else if constexpr (requires { name(*value); }) {
      return name(*value);
    } else if constexpr (std::same_as<const Read, decltype(kDuration)>) {
      return us_of(value);
    } else if constexpr (std::same_as<T, std::string>) {
      return std::string_view(value);
    } else {
      return value;
    }
  }

  Json& json_;
};
using MemberWriter = Members<false>;
using MemberReader = Members<true>;

/// The value that members() takes; const when it is written.
template <class T, class Of>
concept Is = std::same_as<std::remove_const_t<T>, Of>;

template <class T>
void JsonOf<T>::write(JsonText& json, const T& value) {
  json.open('{');
  MemberWriter writer(json);
  members(writer, value);
  json.close('}');
}

template <class T>
void JsonOf<T>::read(const JsonField& object, T& value) {
  MemberReader reader(object);
  members(reader, value);
}

/// The graph of a step; left out if the step has none.
template <class Json>
void graph_member(Json& json, StepPhase phase, auto& sequences) {
  if constexpr (Json::kReads) {
    const auto graph = json.field().find("graph");
    sequences = graph ? sequences_of_graph(graph->text()) : 0;
    if (graph && sequences == 0) graph->expected("decode_bN or prefill_bN");
  } else if (sequences > 0) {
    json.told("graph", graph_name(phase, sequences));
  }
}

}  // namespace minfer
