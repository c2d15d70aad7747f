// SPDX-License-Identifier: Apache-2.0
//
// Property: a fiber goes on as if nothing had run in between: what the calling convention keeps
// across a call is kept across a switch, modes of rounding included. Its stack is aligned, catches
// exceptions, and ends at a page that traps, whatever the size of pages is.
#include "base/io/fiber.h"

#include <gtest/gtest.h>

#include <array>
#include <cfenv>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/io/page_bytes.h"

namespace cairn::io {
namespace {

// A body that can give way to the test's own stack.
class Partner {
 public:
  explicit Partner(void (*body)(Partner&)) : body_(body), fiber_(stack_, &Partner::Run, this) {}
  void Resume() { test_.SwitchTo(fiber_); }
  void GiveWay() { fiber_.SwitchTo(test_); }

 private:
  static void Run(void* self) {
    auto* partner = static_cast<Partner*>(self);
    partner->body_(*partner);
    partner->fiber_.SwitchForEver(partner->test_);
  }

  void (*body_)(Partner&);
  FiberStack stack_;
  Fiber test_;
  Fiber fiber_;
};

// More values than there are registers that calls keep, alive across every call of `give_way`.
template <typename GiveWay>
bool KeepsItsValues(uint64_t seed, const GiveWay& give_way) {
  volatile uint64_t from = seed;
  const uint64_t a = from, b = a + from, c = b + from, d = c + from, e = d + from, f = e + from,
                 g = f + from, h = g + from, i = h + from, j = i + from, k = j + from, l = k + from;
  volatile double real = static_cast<double>(seed) + 0.5;
  const double p = real, q = p + real, r = q + real, s = r + real, t = s + real, u = t + real,
               v = u + real, w = v + real, x = w + real, y = x + real;
  bool kept = true;
  for (int round = 0; round < 3; ++round) {
    give_way();
    const std::array<uint64_t, 12> integers{a, b, c, d, e, f, g, h, i, j, k, l};
    const std::array<double, 10> reals{p, q, r, s, t, u, v, w, x, y};
    for (size_t n = 0; n < integers.size(); ++n) kept &= integers[n] == (n + 1) * seed;
    double expected = 0;
    for (const double one : reals) kept &= one == (expected += real);
  }
  return kept;
}

TEST(Fiber, KeepsRegisters) {
  static bool kept[2];
  Partner one(
      [](Partner& self) { kept[0] = KeepsItsValues(1'000'003, [&self] { self.GiveWay(); }); });
  Partner two([](Partner& self) { kept[1] = KeepsItsValues(77, [&self] { self.GiveWay(); }); });
  EXPECT_TRUE(KeepsItsValues(9'999'991, [&] {
    one.Resume();
    two.Resume();
  }));
  one.Resume();
  two.Resume();
  EXPECT_TRUE(kept[0]);
  EXPECT_TRUE(kept[1]);
}

TEST(Fiber, HasModesOfRoundingOfItsOwn) {
  static int seen[2];
  ASSERT_EQ(0, std::fesetround(FE_DOWNWARD));
  Partner partner([](Partner& self) {
    seen[0] = std::fegetround();
    std::fesetround(FE_UPWARD);
    self.GiveWay();
    seen[1] = std::fegetround();
  });
  ASSERT_EQ(0, std::fesetround(FE_TONEAREST));
  partner.Resume();
  EXPECT_EQ(FE_DOWNWARD, seen[0]) << "it began in other modes than those it was made in";
  EXPECT_EQ(FE_TONEAREST, std::fegetround());
  partner.Resume();
  EXPECT_EQ(FE_UPWARD, seen[1]);
  EXPECT_EQ(FE_TONEAREST, std::fegetround());
}

TEST(Fiber, StandsOnAnAlignedStack) {
  static std::vector<uintptr_t> frames;
  frames.clear();
  for (int i = 0; i < 20; ++i) {  // More than there are colours.
    Partner partner([](Partner&) {
      frames.push_back(reinterpret_cast<uintptr_t>(__builtin_frame_address(0)));
    });
    partner.Resume();
  }
  ASSERT_EQ(20u, frames.size());
  for (const uintptr_t frame : frames) EXPECT_EQ(0u, frame % 16);
}

TEST(Fiber, CatchesWhatItThrows) {
  static std::string caught;
  Partner partner([](Partner& self) {
    try {
      self.GiveWay();
      throw std::runtime_error("thrown by a fiber");
    } catch (const std::exception& error) {
      caught = error.what();
    }
  });
  partner.Resume();
  partner.Resume();
  EXPECT_EQ("thrown by a fiber", caught);
}

TEST(FiberStackDeathTest, EndsAtAPageThatTraps) {
  const FiberStack stack;
  auto* const bottom = static_cast<volatile char*>(stack.bottom());
  EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(stack.bottom()) % PageBytes());
  bottom[0] = 1;
  bottom[stack.bytes() - 1] = 1;
  EXPECT_DEATH(bottom[-1] = 1, "");
}

}  // namespace
}  // namespace cairn::io
