"""The fixture `assert_no_slower`."""

pytest_plugins = ["kernel_suite.testing"]
