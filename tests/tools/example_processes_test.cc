// SPDX-License-Identifier: Apache-2.0
//
// Property: of two processes, one with the model and one with the store, either may be killed at
// any moment: what the owner has said is saved is there, all that is there is what the model
// computes, token for token and row for row, and both go on. Method: the example's programs, killed
// with SIGKILL at random moments (CAIRN_TEST_KILLS times each, 12 by default), with a verifier in
// between that computes all of it again.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/status.h"
#include "tests/support/test_seed.h"
#include "tests/support/test_store.h"
#include "tests/tools/run_tool.h"
#include "tools/example/processes/toy_model.h"

namespace cairn::testing {
namespace {

namespace fs = std::filesystem;

// A program of the example, whose output is read as it comes.
class Program {
 public:
  explicit Program(std::vector<std::string> arguments) {
    int ends[2];
    EXPECT_EQ(0, pipe2(ends, O_CLOEXEC));
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    const std::string path = CAIRN_BIN_DIR "/cairn-example-processes";
    std::vector<char*> words = {const_cast<char*>(path.c_str())};
    for (std::string& argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    process_ = fork();
    if (process_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      execv(path.c_str(), words.data());
      _exit(127);
    }
    close(ends[1]);
    output_ = ends[0];
  }
  ~Program() {
    Kill();
    close(output_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void Kill() {
    if (process_ == 0) return;
    kill(process_, SIGKILL);
    int status = 0;
    EXPECT_EQ(process_, waitpid(process_, &status, 0));
    EXPECT_TRUE(WIFSIGNALED(status)) << "it ended before, with " << WEXITSTATUS(status);
    process_ = 0;
  }
  // Whole lines that it has written since the last call.
  std::vector<std::string> Lines() {
    char bytes[4096];
    for (ssize_t size; (size = read(output_, bytes, sizeof bytes)) > 0;) {
      rest_.append(bytes, static_cast<size_t>(size));
    }
    std::vector<std::string> lines;
    for (size_t end; (end = rest_.find('\n')) != std::string::npos; rest_.erase(0, end + 1)) {
      lines.push_back(rest_.substr(0, end));
    }
    return lines;
  }

 private:
  pid_t process_ = 0;
  int output_ = -1;
  std::string rest_;
};

using Lengths = std::map<uint64_t, uint64_t>;  // Of conversations.

class ExampleProcessesTest : public ::testing::Test {
 protected:
  std::string store() const { return directory_ / "store"; }
  std::string socket() const { return directory_ / "socket"; }
  std::unique_ptr<Program> NewOwner() const {
    return std::make_unique<Program>(std::vector<std::string>{"owner", store(), socket()});
  }
  std::unique_ptr<Program> NewWorker() const {
    return std::make_unique<Program>(std::vector<std::string>{"worker", socket()});
  }

  // Takes down what the worker was told is saved. How many answers that were.
  size_t Note(Program& worker) {
    size_t count = 0;
    for (const std::string& line : worker.Lines()) {
      std::istringstream words(line);
      std::string word;
      uint64_t conversation = 0, length = 0;
      EXPECT_TRUE(words >> word >> conversation >> length && word == "saved") << line;
      saved_[conversation] = std::max(saved_[conversation], length);
      ++count;
    }
    return count;
  }
  bool AwaitSaves(Program& worker, size_t wanted) {
    for (int i = 0; i < 10'000; ++i) {
      const size_t count = Note(worker);
      wanted -= std::min(wanted, count);
      if (wanted == 0) return true;
      usleep(1000);
    }
    return false;
  }
  // All that is in the store is right. `alone`: and what was saved is in it. Beside a writer only
  // what is on stable media shows.
  void Verify(bool alone) {
    const ToolResult result = RunTool("cairn-example-processes", {"verify", store()});
    ASSERT_EQ(0, result.exit_code) << result.errors;
    Lengths stored;
    std::istringstream lines(result.output);
    std::string word;
    for (uint64_t conversation, length; lines >> word >> conversation >> length;) {
      stored[conversation] = length;
    }
    for (const auto& [conversation, length] : alone ? saved_ : Lengths()) {
      EXPECT_GE(stored[conversation], length) << "of conversation " << conversation;
    }
  }

  const TempDirectory folder_;
  const fs::path directory_ = folder_.path();
  Lengths saved_;
  int sockets_ = 0;
};

TEST_F(ExampleProcessesTest, EitherIsKilledAtRandomMoments) {
  const char* const given = std::getenv("CAIRN_TEST_KILLS");
  const int kills_of_each = given != nullptr ? std::atoi(given) : 12;
  std::mt19937_64 random(TestSeed());
  auto owner = NewOwner();
  auto worker = NewWorker();
  ASSERT_TRUE(AwaitSaves(*worker, 1));
  for (int i = 0; i < 2 * kills_of_each && !HasFailure(); ++i) {
    usleep(static_cast<useconds_t>(random() % 30'000));
    auto& killed = i % 2 == 0 ? owner : worker;
    killed->Kill();
    Note(*worker);
    if (i % 4 < 2) Verify(/*alone=*/i % 2 == 0);
    killed = i % 2 == 0 ? NewOwner() : NewWorker();
    // Sometimes the next kill comes before they have found each other.
    if (random() % 4 != 0) {
      ASSERT_TRUE(AwaitSaves(*worker, 1)) << "after kill " << i;
    }
  }
  ASSERT_TRUE(AwaitSaves(*worker, 10)) << "both go on";
  owner->Kill();
  worker->Kill();
  Note(*worker);
  Verify(/*alone=*/true);
  EXPECT_GT(saved_.size(), 0U);
  for (const auto& entry : fs::directory_iterator(store())) {
    // The last owner's own; those of the killed ones before it are gone.
    sockets_ += entry.path().filename().string().starts_with("area-") ? 1 : 0;
  }
  EXPECT_LE(sockets_, 1);
}

// An owner that is killed between making a branch and appending to it leaves this. The next one
// waited for a report on rows that there were none of, and the worker for its answer.
TEST_F(ExampleProcessesTest, ABranchWithoutTokensHeldBothUp) {
  {
    ASSERT_OK_ASSIGN(Store made,
                     Store::Open(store(), {.create_if_missing = true, .segment_bytes = 1 << 20}));
    ASSERT_OK_ASSIGN(const ModelId model, made.RegisterModel(processes::Spec()));
    ASSERT_OK(made.CreateBranch(model, {.name = "conversation 0"}));
    ASSERT_OK(made.Close());
  }
  const auto owner = NewOwner();
  const auto worker = NewWorker();
  EXPECT_TRUE(AwaitSaves(*worker, 3));
}

TEST_F(ExampleProcessesTest, AStoreThatCannotBeOpenedIsSaid) {
  {
    const auto owner = NewOwner();
    const auto worker = NewWorker();
    ASSERT_TRUE(AwaitSaves(*worker, 20));
  }
  Verify(/*alone=*/true);
  const ToolResult other = RunTool("cairn-example-processes", {"verify", directory_ / "none"});
  EXPECT_EQ(1, other.exit_code);
  EXPECT_NE(other.errors.find("no store"), std::string::npos) << other.errors;
  EXPECT_EQ(2, RunTool("cairn-example-processes", {}).exit_code);
  EXPECT_EQ(1, RunTool("cairn-example-processes", {"owner", "/dev/null", "x"}).exit_code);
}

}  // namespace
}  // namespace cairn::testing
