// The library that the tests of the census read: every way in which an alert is raised that is known from builds of
// torch, and a few that must be called unresolved. Built once and kept beside this file, for machines without g++:
//
//   g++ -std=c++17 -O2 -fPIC -shared -nostdlib -fno-exceptions -fno-asynchronous-unwind-tables -fcf-protection=none
//       -Wl,-z,noseparate-code -Wl,-z,max-page-size=4096 -Wl,--build-id=0x0123456789abcdef -o alerts.so alerts.cpp
#include <cstddef>
#include <string_view>

namespace c10 {
// As releases up to 2.6 have it: the pointer first, and a loop that counts.
template <class Char>
struct basic_string_view {
  const Char* begin;
  std::size_t size;
  basic_string_view(const Char* text) : begin(text), size(0) {
    while (text[size]) ++size;
  }
};
}  // namespace c10

namespace at {
struct __attribute__((visibility("default"))) Context {
  static void alertNotDeterministic(std::string_view const& caller);
  static void alertNotDeterministic(c10::basic_string_view<char> const& caller);
  static void alertNotDeterministic(const char* caller);
  void alertCuBLASConfigNotDeterministic() const;
  bool deterministicAlgorithms() const;
  bool deterministicCuDNN() const;
  bool deterministicFillUninitializedMemory() const;
};
Context& globalContext();

namespace native {
extern int state;
void work(int);
[[noreturn]] void fail();

void always() {
  Context::alertNotDeterministic(std::string_view("always_caller"));
  work(1);
}

void conditional(bool accumulate) {
  if (!accumulate) Context::alertNotDeterministic(std::string_view("put_"));
  work(2);
}

void older(bool accumulate) {
  if (!accumulate) Context::alertNotDeterministic(c10::basic_string_view<char>("older_caller"));
  work(3);
}

void choose(int mode) {
  switch (mode) {
    case 0: Context::alertNotDeterministic(std::string_view("zero mode")); work(10); break;
    case 1: Context::alertNotDeterministic(c10::basic_string_view<char>("one mode")); work(21); break;
    case 2: work(32); break;
    case 3: work(43); globalContext(); break;
    case 4: fail();
    case 5: work(65); work(66); break;
  }
  work(state);
}

// The view lies in the library itself, its pointer is filled in by the loader; nothing follows the call.
static const std::string_view kept = "kept_caller";
void jumps() { Context::alertNotDeterministic(kept); }

void computed(const char* name, std::size_t size) {
  Context::alertNotDeterministic(std::string_view(name, size));
  work(4);
}

void plain() {
  Context::alertNotDeterministic("a plain string");
  work(5);
}

using Raise = void (*)(std::string_view const&);
Raise taken() { return &Context::alertNotDeterministic; }

__attribute__((cold, noinline)) void rare() {
  Context::alertNotDeterministic(std::string_view("rare_caller"));
  work(6);
}
void checked(int size) {
  if (size < 0) fail();
  Context::alertNotDeterministic(std::string_view("checked_caller"));
  work(size);
}
void moved(int size) {
  work(size);
  if (__builtin_expect(size == 7, 0)) {
    rare();
    Context::alertNotDeterministic(std::string_view("moved_caller"));
    work(7);
    rare();
  }
  work(8);
}

void gemm() {
  globalContext().alertCuBLASConfigNotDeterministic();
  work(9);
}

namespace {
template <class T>
__attribute__((noinline)) bool asks() {
  return globalContext().deterministicAlgorithms() && sizeof(T) > state;
}
}  // namespace
bool both() { return asks<int>() || asks<double>(); }
bool lambda(int size) {
  auto inner = [size]() __attribute__((noinline)) { return globalContext().deterministicCuDNN() && size > state; };
  return inner() && globalContext().deterministicFillUninitializedMemory();
}
}  // namespace native
}  // namespace at
