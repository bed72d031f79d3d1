#include "models/gguf/name_index.h"

#include <string>

#include <gtest/gtest.h>

namespace minfer {
namespace {

class NameIndexTest : public ::testing::Test {
 protected:
  std::vector<std::string> names_;
  std::string_view name_of(uint32_t i) const { return names_[i]; }
  NameIndex index() const {
    return {static_cast<uint32_t>(names_.size()), [this](uint32_t i) { return name_of(i); }};
  }
  std::optional<uint32_t> find(const NameIndex& index, std::string_view name) const {
    return index.find(name, [this](uint32_t i) { return name_of(i); });
  }
  std::optional<std::string_view> duplicate(const NameIndex& index) const {
    return index.duplicate([this](uint32_t i) { return name_of(i); });
  }
};

TEST_F(NameIndexTest, FindsEveryNameAndNoOther) {
  for (int i = 0; i < 1000; ++i)
    names_.push_back("name." + std::to_string(i * 7));
  const NameIndex built = index();
  for (uint32_t i = 0; i < names_.size(); ++i)
    EXPECT_EQ(find(built, names_[i]), i);
  EXPECT_EQ(find(built, "name.1"), std::nullopt);
  EXPECT_EQ(find(built, ""), std::nullopt);
  EXPECT_EQ(duplicate(built), std::nullopt);
}

TEST_F(NameIndexTest, EmptyIndexFindsNothing) {
  EXPECT_EQ(find(index(), "a"), std::nullopt);
  EXPECT_EQ(duplicate(index()), std::nullopt);
}

TEST_F(NameIndexTest, NamesTheDuplicate) {
  names_ = {"a", "b", "c", "b"};
  EXPECT_EQ(duplicate(index()), "b");
}

TEST_F(NameIndexTest, NamesThatChangeGiveWrongAnswersAtWorst) {
  names_ = {"a", "b", "c"};
  const NameIndex built = index();
  names_ = {"c", "a", "x"};
  EXPECT_EQ(find(built, "a"), std::nullopt);
  EXPECT_EQ(find(built, "x"), std::nullopt);
}

}  // namespace
}  // namespace minfer
