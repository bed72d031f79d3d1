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

/// The getters that read members, with their ranges.
inline constexpr auto kNumber = &JsonField::number;
inline constexpr auto kBytes = &JsonField::bytes;
inline constexpr auto kWork = &JsonField::work;
inline constexpr auto kBoolean = &JsonField::boolean;
inline constexpr auto kText = &JsonField::text;
/// ns in memory, us in the line.
inline constexpr auto kDuration = [](const JsonField& field) { return field.duration_ns(); };
template <int32_t least>
constexpr auto kSmallFrom = [](const JsonField& field) { return field.small(least); };
inline constexpr auto kSmall = kSmallFrom<0>;
template <int64_t least>
constexpr auto kCountFrom = [](const JsonField& field) { return field.count(least); };
inline constexpr auto kCount = kCountFrom<0>;
template <int64_t least>
constexpr auto kTimeFrom = [](const JsonField& field) { return field.time_ns(least); };
inline constexpr auto kTime = kTimeFrom<0>;
template <class... Enum>
constexpr auto one_name_of(Enum... values) {
  return [values = std::array{values...}](const JsonField& field) { return one_of(field, values); };
}

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
  template <class T, class Read, std::same_as<int>... Decimals>
  Members& member(std::string_view name, T& value, Read read, Decimals... decimals) {
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
  template <class T, class Read>
  Members& optional(std::string_view name, T& value, Read read,
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
  template <class List, class Read>
  Members& plain_list(std::string_view name, List& values, Read read) {
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

/// Writes an object with its members, and its schema in front, if that is not empty.
template <class T>
void write_members(JsonText& json, const T& value, std::string_view schema = {}) {
  json.open('{');
  if (!schema.empty()) json.field("schema", schema);
  MemberWriter writer(json);
  members(writer, value);
  json.close('}');
}

template <class T>
void append_line(std::string& out, const T& value) {
  JsonText json(out);
  write_members(json, value, kSchemaOf<T>);
  out += '\n';
}

template <class T>
T read_members(const JsonField& field) {
  T value;
  MemberReader reader(field);
  members(reader, value);
  return value;
}

template <class T>
T line_of(const JsonField& line) {
  return read_members<T>(line);
}

}  // namespace minfer
